"""The server's own flags, read from its declarations as text: nothing of the engine is imported.

Upstream declares a flag as a field with an annotation `A[TYPE, Arg(…)]` or `A[TYPE, "help"]`, and
a few by `parser.add_argument`. `test/unit/recipe/test_server_flags.py` holds what is read here
against the parser that upstream makes of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .names import srt

_FIELDS = "arg_groups/fields"
_CHOICES = "arg_groups/choices.py"
_PARSER = "server_args.py"


@dataclass(frozen=True)
class Flag:
    """One flag. `names`: its spellings, the first is the usual one. `choices`: None where any value
    is taken, or what is taken is computed. `number`: int or float. `switch`: takes no value."""

    names: tuple[str, ...]
    choices: tuple[str, ...] | None = None
    number: type | None = None
    switch: bool = False


# Of a package that SGLang requires, whose plugin adds them where `sglang serve` loads plugins.
PLUGIN_FLAGS = (
    Flag(("--servicer-impl",)),
    Flag(("--metrics-host",)),
    Flag(("--metrics-port",)),
)


@lru_cache(maxsize=1)
def server_flags() -> dict[str, Flag]:
    """By spelling, every flag that the server takes.

    Raises:
        ImportError: the declarations are not where they were: upstream moved them.
    """
    lists = _lists(_tree(_CHOICES))
    found = {name: one for one in PLUGIN_FLAGS for name in one.names}
    for file in sorted((srt() / _FIELDS).glob("*.py")):
        for one in _declared(_tree(f"{_FIELDS}/{file.name}"), lists):
            found |= dict.fromkeys(one.names, one)
    for one in _added(_tree(_PARSER), lists):
        found |= dict.fromkeys(one.names, one)
    if "--model-path" not in found:
        raise ImportError(f"{srt() / _FIELDS} declares no flags any more")
    return found


def _tree(file: str) -> ast.Module:
    try:
        return ast.parse((srt() / file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ImportError(f"{srt() / file} is not there; run `make vendor`") from error


def _lists(tree: ast.Module) -> dict[str, Any]:
    """`NAME = [literals]` at the top of a module."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


def _declared(tree: ast.Module, lists: dict[str, Any]) -> Iterator[Flag]:
    for cls in tree.body:
        for field in cls.body if isinstance(cls, ast.ClassDef) else ():
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                flag = _of_field(field.target.id, field.annotation, lists)
                if flag is not None:
                    yield flag


def _of_field(name: str, annotation: ast.expr, lists: dict[str, Any]) -> Flag | None:
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "A"):
        return None
    kind, *marks = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [None]
    told: dict[str, ast.expr] = {}
    for mark in marks:
        if not isinstance(mark, ast.Call):
            continue
        if ast.unparse(mark.func) != "Arg":  # Derived, which is no option
            return None
        told = {word.arg: word.value for word in mark.keywords if word.arg}
    if kind is None or "no_cli" in told:
        return None
    usual = _literal(told.get("cli_name"), lists) or "--" + name.replace("_", "-")
    names = [usual, *(_literal(told.get("aliases"), lists) or ())]
    action = "action" in told
    if action and "BooleanOptionalAction" in ast.unparse(told["action"]):
        names += [f"--no-{one.removeprefix('--')}" for one in names]
        return Flag(tuple(names), switch=True)
    kind = _without_none(kind)
    plain = ast.unparse(kind)
    choices = _literal(told.get("choices"), lists) if "choices" in told else _literal_type(kind)
    own = action or "type_parser" in told or "nargs" in told
    return Flag(
        tuple(names),
        tuple(map(str, choices)) if choices and not own else None,
        {"int": int, "float": float}.get(plain) if not own else None,
        plain == "bool" and not own,
    )


def _without_none(kind: ast.expr) -> ast.expr:
    if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Optional":
        return kind.slice
    if isinstance(kind, ast.BinOp) and ast.unparse(kind.right) == "None":
        return kind.left
    return kind


def _literal_type(kind: ast.expr) -> Any:
    """The values of `Literal[…]`; None for another type."""
    if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Literal":
        values = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        return [ast.literal_eval(one) for one in values]
    return None


def _literal(node: ast.expr | None, lists: dict[str, Any]) -> Any:
    """A value that is written down, here or in the lists of choices; None for a computed one."""
    if isinstance(node, ast.Name) and node.id in lists:
        node = lists[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = _literal(node.left, lists), _literal(node.right, lists)
        return None if None in both else [*both[0], *both[1]]
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _added(tree: ast.Module, lists: dict[str, Any]) -> Iterator[Flag]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument"):
            continue
        names = [_literal(one, lists) for one in node.args]
        told = {word.arg: word.value for word in node.keywords if word.arg}
        choices = _literal(told.get("choices"), lists)
        switch = "action" in told and "choices" not in told
        yield Flag(tuple(names), tuple(map(str, choices)) if choices else None, switch=switch)
