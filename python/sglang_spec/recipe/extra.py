"""`[extra]`: flags that the server has and no key of a recipe, each with values that it takes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from .keys import key_of, one_of
from .secret import HIDDEN, REMEDY, is_secret_name
from .sections import SECTIONS, Recipe
from .server_flags import Flag, server_flags

Broken = Iterator[tuple[str, str, Any, str]]
WHERE = "extra.flags"
# What a recipe makes of a key that has another form than its flag.
_OTHER_FORM = {
    "--device": "model.device",
    "--enable-hierarchical-cache": "[hierarchical_cache]",
    "--enforce-disable-flashinfer-allreduce-fusion": 'comm.fusion = "off"',
}


def extra(recipe: Recipe) -> Broken:
    """What is wrong with the flags and variables of a recipe."""
    yield from _flags(recipe.extra.flags)
    for name in recipe.extra.environment:
        if is_secret_name(name):
            remedy = "no secret in a recipe; set it in the environment of the service"
            yield "secret", f"extra.environment.{name}", HIDDEN, remedy


def _flags(words: Sequence[str]) -> Broken:
    flag, values = "", 0
    for word in words:
        if not word.startswith("-") or _is_number(word):
            values += 1
            yield from _value(flag, word, values)
            continue
        yield from _ended(flag, values)
        flag, equals, value = word.partition("=")
        values = 0
        if wrong := _name(flag):
            yield wrong
            flag = "?"  # what follows is its value, and not looked at
        elif equals:
            values = 1
            yield from _value(flag, value, 1)
    yield from _ended(flag, values)


def _name(flag: str) -> tuple[str, str, Any, str] | None:
    meant = {one for spelling, one in server_flags().items() if spelling.startswith(flag)}
    full = meant.pop().names[0] if len(meant) == 1 and len(flag) > len("--") else flag
    own = _with_a_key().get(flag, _with_a_key().get(full))
    if own is not None:
        return "flag-has-a-key", WHERE, flag, f"write it as {own}"
    if is_secret_name(flag):
        return "secret", WHERE, flag, REMEDY
    if flag not in server_flags():
        near = [full] * (full != flag) or difflib.get_close_matches(flag, server_flags(), 1, 0.6)
        said = f"did you mean {near[0]}?" if near else "`sglang serve --help` has them all"
        return "unknown-flag", WHERE, flag, f"the server has no such flag; {said}"
    return None


def _value(name: str, value: str, place: int) -> Broken:
    flag = server_flags().get(name)
    if not name:
        yield "no-flag", WHERE, value, "a value without a flag before it; flags begin with --"
    elif flag is not None and flag.switch:
        yield "no-flag", WHERE, value, f"{name} takes no value; a flag begins with --"
    elif flag is not None and flag.number is not None and (place > 1 or not _is(flag, value)):
        kind = "whole number" if flag.number is int else "number"
        yield "wrong-type", WHERE, value, f"{name} takes one {kind}"
    elif flag is not None and flag.choices is not None and value not in flag.choices:
        yield "not-a-choice", WHERE, value, f"for {name}: {one_of(value, flag.choices)}"


def _ended(name: str, values: int) -> Broken:
    flag = server_flags().get(name)
    if flag is not None and values == 0 and (flag.number or flag.choices):
        yield "no-value", WHERE, name, "it takes a value; write it after the flag"


def _is(flag: Flag, value: str) -> bool:
    assert flag.number is not None
    try:
        flag.number(value)
    except ValueError:
        return False
    return True


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1)
def _with_a_key() -> dict[str, str]:
    """By every spelling of a flag that a key of the recipe stands for: that key."""
    own = dict(_OTHER_FORM)
    for name, section in SECTIONS.items():
        for one in fields(section):
            if flag := key_of(one).flag:
                own[flag] = f"{name}.{one.name}"
    known = server_flags()
    return {
        spelling: key
        for flag, key in own.items()
        for spelling in (known[flag].names if flag in known else (flag,))
    }
