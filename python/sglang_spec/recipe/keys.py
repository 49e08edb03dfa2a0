"""One key of a recipe: its flag and its bounds, kept at the field; tables are read by them."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .problem import Problem
from .secret import HIDDEN, given, holds_password, is_secret_name, shown

FEW = 12  # choices that fit into a line
T = TypeVar("T")
_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list",
    dict: "a table",
}


@dataclass(frozen=True)
class Key:
    """What is known of a key besides its type.

    flag: the server's flag, "" for a key that has none of its own. least, most: bounds, inclusive.
    one_of: the texts that are allowed; a number that the type allows is not held against them.
    """

    flag: str = ""
    least: float | None = None
    most: float | None = None
    one_of: tuple[str, ...] = ()


def key(
    flag: str = "",
    *,
    default: Any = None,
    least: float | None = None,
    most: float | None = None,
    one_of: tuple[str, ...] = (),
) -> Any:
    """A field of a section; `default=MISSING` makes it one that the recipe has to give."""
    return field(default=default, metadata={"key": Key(flag, least, most, one_of)})


def key_of(one: Field[Any]) -> Key:
    found: Key = one.metadata.get("key", Key())
    return found


def read_table(
    cls: type[T], content: Mapping[str, Any], where: str, file: str, found: list[Problem]
) -> T | None:
    """The section `cls` from its table; None where a key that it needs is missing or wrong.

    Args:
        where: name of the section, for the dotted key of a problem.
        found: problems are appended here, so that one reading tells all of them.
    """
    before = len(found)
    known = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name not in known:
            found.append(unknown(file, f"{where}.{name}", value, name, known))
            continue
        if hints[name] == dict[str, str] and isinstance(value, dict):
            found += _not_texts(value, f"{where}.{name}", file)
        elif holds_password(value):
            found.append(given(file, f"{where}.{name}"))
            continue
        problem = _fault(value, hints[name], key_of(known[name]))
        if problem is not None:
            code, remedy = problem
            found.append(Problem(code, file, f"{where}.{name}", shown(value), remedy))
            continue
        values[name] = tuple(value) if isinstance(value, list) else value
    meant = {one.remedy for one in found[before:]}
    for name, one in known.items():
        if f"did you mean {name}?" in meant:
            continue
        if one.default is MISSING and one.default_factory is MISSING and name not in content:
            kind = " or ".join(_names(hints[name]))
            found.append(
                Problem("missing-key", file, f"{where}.{name}", None, f"it is needed; write {kind}")
            )
    return cls(**values) if len(found) == before else None


def _not_texts(table: Mapping[str, Any], where: str, file: str) -> Iterator[Problem]:
    """Every value of a table of texts that is none, by its own key."""
    for name, value in table.items():
        if holds_password(value):
            yield given(file, f"{where}.{name}")
        elif not isinstance(value, str):
            told = HIDDEN if is_secret_name(name) else shown(value)
            yield Problem("wrong-type", file, f"{where}.{name}", told, "write a text, in quotes")


def unknown(file: str, path: str, value: Any, name: str, known: Iterable[str]) -> Problem:
    """A key or section that is not there, with the one that was probably meant."""
    if is_secret_name(name):
        return given(file, path)
    return Problem("unknown-key", file, path, shown(value), near_miss(name, known))


def near_miss(name: str, known: Iterable[str], few: bool = False) -> str:
    """`did you mean …?`, or everything that would be right if nothing is near (unless `few`)."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 3 if few else 1, 0.6)
    if few:
        return f"near are {', '.join(near)}" if near else "nothing is near it"
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"


def one_of(value: str, choices: Sequence[str]) -> str:
    """As `near_miss`, and where there are few choices, all of them: the nearest may be another."""
    said = near_miss(value, choices)
    short = len(choices) <= FEW and said.endswith("?")
    return f"{said} known are {', '.join(choices)}" if short else said


def _fault(value: Any, hint: Any, bounds: Key) -> tuple[str, str] | None:
    """Code and remedy of what is wrong with one value; None if nothing is."""
    allowed = _alternatives(hint)
    if not any(_is(value, one) for one in allowed):
        return "wrong-type", f"write {' or '.join(_names(hint))}"
    if isinstance(value, str) and bounds.one_of and value not in bounds.one_of:
        return "not-a-choice", one_of(value, bounds.one_of)
    if isinstance(value, str) and not value.strip():
        return "empty", "write something, or leave the key out"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            return "out-of-range", "write a finite number"
        if bounds.least is not None and value < bounds.least:
            return "out-of-range", f"write {bounds.least} or more"
        if bounds.most is not None and value > bounds.most:
            return "out-of-range", f"write {bounds.most} or less"
    return None


def _alternatives(hint: Any) -> list[Any]:
    """The types that a key may have, without None: TOML has none, the key is left out instead."""
    if get_origin(hint) in (Union, types.UnionType):
        return [one for one in get_args(hint) if one is not type(None)]
    return [hint]


def _is(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, list) and all(_is(one, inner) for one in value)
    if origin is dict:
        return isinstance(value, dict)  # what it holds is looked at one by one
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _names(hint: Any) -> list[str]:
    found = []
    for one in _alternatives(hint):
        inner = get_args(one)
        words = _WORDS[get_origin(one) or one]
        if get_origin(one) is tuple:
            words += f" of {_WORDS[inner[0]].removeprefix('a ')}s"
        found.append(words)
    return found
