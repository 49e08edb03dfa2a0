"""What a recipe's file holds, as written: TOML with the command line's changes laid over it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .problem import Problem, RecipeError
from .secret import HIDDEN, is_secret_name, shown


def content_of(path: Path, changes: Iterable[str], kind: str = "recipe") -> dict[str, Any]:
    """The tables of a file, with `changes` ("nodes.rank=1") laid over them. `kind`: for errors.

    Raises:
        RecipeError: the file is not to be read or no TOML, or a change is none.
    """
    file = str(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"{error.strerror}; give the path of a {kind}"
        raise RecipeError([Problem("unreadable", file, "file", file, text)]) from error
    except ValueError as error:
        raise RecipeError([Problem("no-toml", file, "file", file, str(error))]) from error
    for change in changes:
        _change(content, change)
    return content


def _change(content: dict[str, Any], change: str) -> None:
    """Lay one `SECTION.KEY=VALUE` over the content; the value is TOML, or else a plain text."""
    path, separator, text = change.partition("=")
    section, dot, name = path.strip().partition(".")
    if not (separator and dot and section and name) or "." in name:
        told = HIDDEN if is_secret_name(path) else shown(text)
        problem = Problem("bad-change", "--set", path, told, "write SECTION.KEY=VALUE")
        raise RecipeError([problem])
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table = content.setdefault(section, {})
    if isinstance(table, dict):  # if it is not, reading the section says so
        table[name] = value
