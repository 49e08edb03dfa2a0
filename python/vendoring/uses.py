"""Which upstream symbols do our own modules use? Read from syntax trees, importing nothing."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

UPSTREAM = "sglang"
OWN_MODULE = "sglang.srt.spec_hardening"
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # where statements hold others


class Use(NamedTuple):
    """A dotted name such as `sglang.srt.server_args.ServerArgs.from_cli_args`, and the file that
    uses it.
    """

    symbol: str
    file: str


@functools.lru_cache(maxsize=1024)
def import_statements(source: bytes) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import statement of a file, wherever in it, in the order of their lines. Kept, since
    mails ask for the same files again and again.
    """
    waiting: list[ast.AST] = [ast.parse(source)]
    found: list[ast.Import | ast.ImportFrom] = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        for block in _BLOCKS:  # no expression holds one, and expressions are most of a file
            waiting += getattr(node, block, ())
    return tuple(sorted(found, key=lambda node: node.lineno))


def uses_in(files: Iterable[Path], root: Path) -> list[Use]:
    """Every upstream symbol in `files`, sorted and without doubles; file names are relative to
    `root`.
    """
    found: set[Use] = set()
    for path in files:
        tree = ast.parse(path.read_bytes(), str(path))
        name = path.relative_to(root).as_posix()
        found |= {Use(symbol, name) for symbol in _symbols(tree)}
    return sorted(found)


def _symbols(tree: ast.Module) -> set[str]:
    names = _imported(tree)
    found = {target for target in names.values() if target != UPSTREAM}
    for node in ast.walk(tree):
        dotted = _dotted(node) if isinstance(node, ast.Attribute) else ""
        first, _, rest = dotted.partition(".")
        if rest and first in names:
            found.add(f"{names[first]}.{rest}")
    whole = {symbol for symbol in found if not _is_own(symbol)}
    # `a.b` goes without saying where `a.b.c` is used.
    return {symbol for symbol in whole if not any(o.startswith(symbol + ".") for o in whole)}


def _imported(tree: ast.Module) -> dict[str, str]:
    """Local name to the upstream symbol it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == UPSTREAM:
                    names[alias.asname or UPSTREAM] = alias.name if alias.asname else UPSTREAM
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            if module.split(".")[0] == UPSTREAM:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{module}.{alias.name}"
    return names


def _is_own(symbol: str) -> bool:
    return symbol == OWN_MODULE or symbol.startswith(OWN_MODULE + ".")


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain on a plain name, else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""
