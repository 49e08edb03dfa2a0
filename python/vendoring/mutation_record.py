"""The kept result of `mutation`: `mutation.json` and the table `mutation.md` beside it.

A run of some patches renews their rows only, so that a slow stack can be gone through bit by bit.
Each row has its date and a fingerprint of what it was run on.
"""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path

from .record import read_rows, shortened, write_rows
from .series import Patch, dependents, encode

_TITLE = "# Each patch left out alone: does its test fail?"
_INTRODUCTION = """\
Written by `make mutation`; `python -m vendoring mutation SLUG` renews one row. Killed is as it
should be: the test passes with all patches and fails without this one. Stale: patch, test name, or
what depends on the patch changed after the run."""


@dataclass(frozen=True)
class Mutant:
    """One patch left out, together with those that depend on it.

    `with_patch` and `without` are passed, failed, skipped or timeout; `verdict` is killed (as it
    should be), survived, unproven (the test does not pass with the patch here) or stuck (the others
    do not apply without it). `detail` is what failed first.
    """

    slug: str
    tests: tuple[str, ...]
    left_out: tuple[str, ...]
    with_patch: str
    without: str
    verdict: str
    detail: str
    date: str
    fingerprint: str

    @classmethod
    def of(
        cls,
        patch: Patch,
        left_out: tuple[str, ...],
        with_patch: str,
        without: str,
        verdict: str,
        detail: str,
    ) -> Mutant:
        """The result of today for this patch as it is now."""
        today = datetime.date.today().isoformat()
        found = (with_patch, without, verdict, shortened(detail), today, fingerprint(patch))
        return cls(patch.slug, patch.header.tests, left_out, *found)


def fingerprint(patch: Patch) -> str:
    """Hash of what a patch changes and of its test's name; its place in the files does not count,
    so that a neighbour that moved it makes no result stale.
    """
    parts = list(patch.header.tests)
    for change in patch.files:
        parts.append(change.path)
        for hunk in change.hunks:
            parts += ["-", *hunk.removed, "+", *hunk.added]
    return hashlib.sha256(encode("\0".join(parts))).hexdigest()[:16]


def read_record(folder: Path) -> list[Mutant]:
    """The rows kept in `folder`, none where nothing was run yet."""
    return read_rows(folder / "mutation.json", "mutants", Mutant)


def due(patches: tuple[Patch, ...], folder: Path) -> list[str]:
    """Patches with no row in `folder`, a stale one, or one that is not as it should be."""
    good = {row.slug: row for row in read_record(folder) if row.verdict == "killed"}
    return [
        patch.slug
        for patch in patches
        if patch.slug not in good or is_stale(good[patch.slug], patch, patches)
    ]


def is_stale(row: Mutant, patch: Patch, patches: tuple[Patch, ...]) -> bool:
    """Was the row run on another patch, or with others left out together with it?"""
    return (row.fingerprint, row.left_out) != (fingerprint(patch), dependents(patch, patches))


def write_record(new: list[Mutant], patches: tuple[Patch, ...], folder: Path) -> list[Mutant]:
    """Puts `new` in place of the rows of those patches, drops rows of patches that are gone, and
    gives all rows in the order of the series.
    """
    rows = {row.slug: row for row in [*read_record(folder), *new]}
    kept = [rows[patch.slug] for patch in patches if patch.slug in rows]
    write_rows(folder / "mutation.json", "mutants", kept)
    text = f"{_TITLE}\n\n{_INTRODUCTION}\n\n{table_text(kept, patches)}"
    (folder / "mutation.md").write_text(text, encoding="utf-8")
    return kept


def table_text(
    rows: list[Mutant], patches: tuple[Patch, ...], only: frozenset[str] | None = None
) -> str:
    """A Markdown table with a line for every patch of the series (or of those in `only`), also for
    one that was never tried.
    """
    lines = [
        "| patch | test | with | without | verdict | date | first failure without it |",
        "|---|---|---|---|---|---|---|",
    ]
    by_slug = {row.slug: row for row in rows}
    for patch in patches:
        if only is not None and patch.slug not in only:
            continue
        row = by_slug.get(patch.slug)
        if row is None:
            lines.append(f"| {patch.slug} | | | | not run | | |")
            continue
        others = ", ".join(name for name in row.left_out if name != row.slug)
        name = f"{row.slug} (with {others})" if others else row.slug
        verdict = f"{row.verdict}, stale" if is_stale(row, patch, patches) else row.verdict
        tests = " ".join(f"`{node}`" for node in row.tests)
        detail = row.detail.replace("|", "\\|")
        cells = (name, tests, row.with_patch, row.without, verdict, row.date, detail)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
