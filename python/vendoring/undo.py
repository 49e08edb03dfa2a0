"""Take single patches back from a tree that has later ones on top, without git and without a wheel.

For hosts that have only the patched files. Lines that a later patch changed too cannot be told
apart; then nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .diff import FileDiff, parse_diff, places, split_lines
from .errors import VendoringError


def undone(patches: Sequence[Path], tree: Path) -> dict[str, str]:
    """Text of each file of `tree` that `patches`, the last one first, have changed, without them.

    Raises:
        VendoringError: a later patch has changed their lines.
    """
    files: dict[str, str] = {}
    for patch in patches:
        text = patch.read_text()
        for change in parse_diff(text[text.index("\ndiff --git ") + 1 :], patch.stem):
            files[change.path] = without(change, _text(files, tree, change.path))
    return files


def _text(files: Mapping[str, str], tree: Path, name: str) -> str:
    return files[name] if name in files else (tree / name).read_text()


def without(change: FileDiff, text: str) -> str:
    """`text` as it was before `change`; later patches may have moved its lines."""
    for hunk in reversed(change.hunks):
        found = places(replace(hunk, old=hunk.new, new=hunk.old), text)
        if not found:
            raise VendoringError(
                "a later patch changed the lines of this one",
                file=change.path,
                key=f"hunk {hunk.number}",
                remedy="take back the patches that depend on it first",
            )
        at = min(found, key=lambda line: abs(line - hunk.new_start))
        lines = split_lines(text)
        lines[at : at + len(hunk.new)] = hunk.old
        text = "".join(lines)
    return text
