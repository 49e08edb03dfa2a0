"""Upstream's model classes as syntax: which can capture layers, and how they read the ids.

No model is imported: the classes are found in the vendored sources, and a family's own
`set_eagle3_layers_to_capture` is run on a stand-in object to see which loop indices it sets.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

METHOD = "set_eagle3_layers_to_capture"
SRT = Path(__file__).resolve().parents[2] / "python/sglang/srt"


@dataclass(frozen=True)
class Class:
    file: str
    bases: tuple[str, ...]
    method: ast.FunctionDef | None


@dataclass(frozen=True)
class Models:
    """`classes` by name (one list, names repeat over files), `entries`: (architecture, file)."""

    classes: Mapping[str, tuple[Class, ...]]
    entries: tuple[tuple[str, str], ...]

    def capturing(self) -> dict[str, Class]:
        """Every architecture that has the method, with the class that defines it."""
        found = {name: self._definer(name, file, ()) for name, file in self.entries}
        return {name: owner for name, owner in found.items() if owner is not None}

    def _definer(self, name: str, file: str, seen: tuple[str, ...]) -> Class | None:
        candidates = self.classes.get(name, ())
        if not candidates or name in seen:
            return None
        owner = next((c for c in candidates if c.file == file), candidates[0])
        if owner.method is not None:
            return owner
        for base in owner.bases:
            if found := self._definer(base, owner.file, (*seen, name)):
                return found
        return None


def read_models(folder: Path = SRT / "models") -> Models:
    classes: dict[str, tuple[Class, ...]] = {}
    entries: list[tuple[str, str]] = []
    for file in sorted(folder.glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base).split(".")[-1] for base in node.bases)
                one = Class(file.name, bases, _method(node))
                classes[node.name] = (*classes.get(node.name, ()), one)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
                value = node.value
                listed = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
                entries += [(ast.unparse(one), file.name) for one in listed]
    return Models(classes, tuple(entries))


def _method(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == METHOD), None)


def loop_indices(owner: Class, ids: list[int] | None, layers: int) -> list[int]:
    """What upstream's own method makes of `ids` for a target of `layers` layers.

    Wrappers that hand the list on to a language model return what they hand on.
    """
    assert owner.method is not None
    function = ast.FunctionDef(**{**vars(owner.method), "returns": None, "decorator_list": []})
    for argument in function.args.args:
        argument.annotation = None
    module = ast.fix_missing_locations(ast.Module([function], []))
    stage = SimpleNamespace(is_last_rank=True)
    names: dict[str, Any] = {"get_parallel": lambda: SimpleNamespace(pp_group=stage)}
    exec(compile(module, owner.file, "exec"), names)
    inner = _Inner(layers)
    text = SimpleNamespace(num_hidden_layers=layers)
    config = SimpleNamespace(num_hidden_layers=layers, text_config=text)
    model = SimpleNamespace(pp_group=stage, config=config, model=inner, language_model=inner)
    names[METHOD](model, ids)
    return list(inner.layers_to_capture)


class _Inner:
    """Model and language model at once: takes the list as an attribute or by the method."""

    def __init__(self, layers: int) -> None:
        self.layers = [SimpleNamespace() for _ in range(layers)]
        self.layers_to_capture: list[int] = []

    def set_eagle3_layers_to_capture(self, given: list[int]) -> None:
        self.layers_to_capture = given
