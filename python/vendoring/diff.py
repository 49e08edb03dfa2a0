"""Unified diffs as git writes them, read strictly: files, hunks, and whether a hunk fits at its
very place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from .errors import VendoringError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_FILE = re.compile(r"diff --git a/(\S+) b/(\S+)")
_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class Hunk:
    """One hunk. `old` and `new` are the lines with their newlines; `old_start` counts from 1."""

    number: int
    old_start: int
    new_start: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class FileDiff:
    """Change of one file, path relative to the tree."""

    path: str
    is_new: bool
    is_deleted: bool
    hunks: tuple[Hunk, ...]

    @property
    def added(self) -> int:
        return sum(len(hunk.added) for hunk in self.hunks)

    @property
    def removed(self) -> int:
        return sum(len(hunk.removed) for hunk in self.hunks)


class Misfit(NamedTuple):
    """Why a hunk does not fit exactly. `offset` is the number of lines it is off, None for a
    conflict.
    """

    path: str
    hunk: int
    offset: int | None
    detail: str


def split_lines(text: str) -> list[str]:
    """Lines with their newline, split at line feeds only (as git does)."""
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def parse_diff(text: str, where: str) -> tuple[FileDiff, ...]:
    """Reads a git diff. Binary changes, renames and mode changes are refused; `where` names the
    patch file.
    """
    files: list[FileDiff] = []
    lines = text.split("\n")
    position = 0
    while position < len(lines):
        if not lines[position]:
            position += 1
            continue
        match = _FILE.fullmatch(lines[position])
        if match is None and lines[position].startswith("diff --git "):
            raise VendoringError(
                "the patch changes a file whose name it cannot carry",
                file=where,
                value=lines[position].removeprefix("diff --git "),
                remedy="use file names of ASCII characters without spaces",
            )
        if match is None or match[1] != match[2]:
            raise _unreadable(where, position, lines[position])
        one, position = _parse_file(lines, position + 1, match[1], where)
        files.append(one)
    return tuple(files)


def _parse_file(lines: list[str], position: int, path: str, where: str) -> tuple[FileDiff, int]:
    is_new = is_deleted = False
    while position < len(lines) and not lines[position].startswith(("@@ ", "diff --git ")):
        line = lines[position]
        is_new |= line.startswith("new file mode ")
        is_deleted |= line.startswith("deleted file mode ")
        refused = (
            "old mode",
            "new mode",
            "rename ",
            "copy ",
            "similarity ",
            "GIT binary",
            "Binary files",
            *("new file mode 12", "new file mode 16"),  # a symbolic link, another repository
        )
        if line.startswith(refused):
            raise VendoringError(
                "the patch changes more than text",
                file=where,
                key=path,
                value=line,
                remedy="patches here change, add or delete ordinary text files only",
            )
        if line and not line.startswith(
            ("index ", "--- ", "+++ ", "new file mode ", "deleted file mode ")
        ):
            raise _unreadable(where, position, line)
        position += 1
    hunks: list[Hunk] = []
    while position < len(lines) and lines[position].startswith("@@ "):
        hunk, position = _parse_hunk(lines, position, len(hunks) + 1, where)
        hunks.append(hunk)
    return FileDiff(path, is_new, is_deleted, tuple(hunks)), position


def _parse_hunk(lines: list[str], position: int, number: int, where: str) -> tuple[Hunk, int]:
    match = _HUNK.fullmatch(lines[position])
    if match is None:
        raise _unreadable(where, position, lines[position])
    old_left, new_left = int(match[2] or 1), int(match[4] or 1)
    old: list[str] = []
    new: list[str] = []
    added: list[str] = []
    removed: list[str] = []
    position += 1
    while old_left > 0 or new_left > 0:
        line = lines[position] if position < len(lines) else ""
        kind, text = line[:1], line[1:]
        if kind not in (" ", "+", "-"):
            raise _unreadable(where, position, line)
        position += 1
        if position < len(lines) and lines[position] == _NO_NEWLINE:
            position += 1
        else:
            text += "\n"
        if kind != "+":
            old.append(text)
            old_left -= 1
        if kind != "-":
            new.append(text)
            new_left -= 1
        if kind == "+":
            added.append(text)
        if kind == "-":
            removed.append(text)
    hunk = Hunk(
        number, int(match[1]), int(match[3]), tuple(old), tuple(new), tuple(added), tuple(removed)
    )
    return hunk, position


def misfits(change: FileDiff, text: str | None) -> list[Misfit]:
    """Hunks that do not match `text` (the file before the patch, None where there is none) at their
    very lines.
    """
    if change.is_new:
        return (
            []
            if text is None
            else [Misfit(change.path, 1, None, "the file to be added is there already")]
        )
    if text is None:
        return [Misfit(change.path, 1, None, "the file does not exist")]
    lines = split_lines(text)
    found = (_misfit(change.path, hunk, lines) for hunk in change.hunks)
    return [misfit for misfit in found if misfit is not None]


def places(hunk: Hunk, text: str, context: int | None = None) -> list[int]:
    """Where in `text` the hunk would fit, as line numbers from 0.

    `context` keeps only that many unchanged lines before and after what it changes.
    """
    old = list(hunk.old)
    if context is not None:
        before, after = _same_lines(hunk.old, hunk.new), _same_lines(hunk.old[::-1], hunk.new[::-1])
        old = old[max(0, before - context) : len(old) - max(0, after - context)]
    return _found(old, split_lines(text))


def _same_lines(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _found(old: list[str], lines: list[str]) -> list[int]:
    return [i for i in range(len(lines) - len(old) + 1) if old and lines[i : i + len(old)] == old]


def _misfit(path: str, hunk: Hunk, lines: list[str]) -> Misfit | None:
    old = list(hunk.old)
    at = hunk.old_start - 1 if old else hunk.old_start
    if lines[at : at + len(old)] == old:
        return None
    found = _found(old, lines)
    if found:
        offset = min((i - at for i in found), key=abs)
        return Misfit(
            path, hunk.number, offset, f"line {hunk.old_start}: fits {offset:+d} lines away"
        )
    for i, wanted in enumerate(old):
        there = lines[at + i] if at + i < len(lines) else "(end of file)"
        if there != wanted:
            detail = f"line {at + i + 1}: wanted {_shown(wanted, there)}"
            return Misfit(path, hunk.number, None, detail)
    return Misfit(path, hunk.number, None, f"line {hunk.old_start}: beyond the end of the file")


def _shown(wanted: str, there: str) -> str:
    """Both lines without the space around them, unless that is what differs."""
    if wanted.strip() == there.strip():
        return f"{wanted!r}, found {there!r}"
    return f"{wanted.strip()!r}, found {there.strip()!r}"


def _unreadable(where: str, position: int, line: str) -> VendoringError:
    return VendoringError(
        "the patch cannot be read",
        file=where,
        key=f"diff line {position + 1}",
        value=line or "(nothing is left of the hunk)",
        remedy="write patches with `python -m vendoring export`, not by hand",
    )
