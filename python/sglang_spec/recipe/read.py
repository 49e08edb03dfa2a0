"""From a TOML file to a `Recipe`, every wrong key named at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .content import content_of
from .keys import read_table, unknown
from .problem import Problem, RecipeError
from .rules import broken
from .secret import shown
from .sections import SECTIONS, Recipe


def load(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """The recipe of a file, with `changes` ("nodes.rank=1") laid over it first.

    Raises:
        RecipeError: all that is wrong with it, without looking at the machine or the models.
    """
    return from_content(content_of(path, changes), str(path))


def from_content(content: dict[str, Any], file: str) -> Recipe:
    """The recipe of a parsed file; RecipeError as for `load`."""
    found: list[Problem] = []
    sections: dict[str, Any] = {}
    about = content.get("about", "")
    if not isinstance(about, str):
        found.append(Problem("wrong-type", file, "about", about, "write a text"))
    for name, value in content.items():
        if name == "about":
            continue
        if name not in SECTIONS:
            found.append(unknown(file, name, value, name, ["about", *SECTIONS]))
        elif not isinstance(value, dict):
            told = shown(value)
            found.append(Problem("wrong-type", file, name, told, f"write a section, [{name}]"))
        else:
            sections[name] = read_table(SECTIONS[name], value, name, file, found)
    if "model" not in content:
        found.append(Problem("missing-key", file, "model", None, "it is needed; write [model]"))
    if found:
        raise RecipeError(found)
    recipe = Recipe(file=file, about=about, **sections)
    if found := list(broken(recipe)):
        raise RecipeError(found)
    return recipe
