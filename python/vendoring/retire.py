"""`Retire-When`: the condition under which a patch has no purpose any more, in a form a tool can
ask.

already-in            upstream has the change itself
version >= 0.5.30     upstream has reached this version
contains FILE TEXT    upstream's FILE (relative to sglang/) has TEXT in it
lacks FILE TEXT       upstream's FILE is gone or has no such TEXT
never REASON          ours for good
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

FORMS = "already-in | version >= V | contains FILE TEXT | lacks FILE TEXT | never REASON"

Reader = Callable[[str], str | None]
"""Gives the text of an upstream file, None where there is none."""


@dataclass(frozen=True)
class RetireWhen:
    """One condition; `file` and `text` are empty where the kind has none."""

    kind: str
    file: str = ""
    text: str = ""


def parse_retire(value: str) -> RetireWhen | None:
    """Reads the field, None if it has none of the known forms."""
    words = value.split()
    match words:
        case ["already-in"]:
            return RetireWhen("already-in")
        case ["version", ">=", version] if re.fullmatch(r"\d+(\.\d+)*", version):
            return RetireWhen("version", text=version)
        case ["contains" | "lacks" as kind, file, _, *_]:
            return RetireWhen(kind, file, value.split(None, 2)[2])
        case ["never", _, *_]:
            return RetireWhen("never", text=value.split(None, 1)[1])
    return None


def is_due(condition: RetireWhen, version: str, read: Reader, already_in: bool) -> bool:
    """Does the condition hold for upstream `version`, whose files `read` gives?"""
    if condition.kind == "already-in":
        return already_in
    if condition.kind == "version":
        return release(version) >= release(condition.text)
    if condition.kind in ("contains", "lacks"):
        there = condition.text in (read(condition.file) or "")
        return there if condition.kind == "contains" else not there
    return False


def release(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: 0.5.23 of `0.5.23.post1`."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
