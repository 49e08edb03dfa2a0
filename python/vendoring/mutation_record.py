"""The kept result of `mutation`: `mutation.json` and the table `mutation.md` beside it.

A run of some patches renews their rows only, so that a slow stack can be gone through bit by bit.
Each row has its date and a fingerprint of what it was run on.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .errors import VendoringError
from .series import Patch, encode

_TITLE = "# Each patch left out alone: does its test fail?"
_INTRODUCTION = """\
Written by `make mutation`; `python -m vendoring mutation SLUG` renews one row. Killed is as it
should be: the test passes with all patches and fails without this one. Stale: patch or test name
changed after the run."""
_WORDS = 160  # characters of a failure that the table shows
_PATH = re.compile(r"(?<![\w.:/…])/([^\s/'\"`()\[\]{},:;]+)(?:/[^\s/'\"`()\[\]{},:;]*)*")


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


def shortened(text: str) -> str:
    """One line of a failure for the table. Of a path on this machine only its last part stays:
    where somebody keeps a checkout or temporary files is noise that differs from run to run. A path
    is one of this machine if its first folder exists, so that a route such as /v1/models stays.
    """

    def last_part(found: re.Match[str]) -> str:
        if not Path("/", found[1]).exists():
            return found[0]
        last = found[0].rstrip("/").rsplit("/", 1)[1]
        return "…" if last == found[1] else f"…/{last}"

    return _PATH.sub(last_part, " ".join(text.split()))[:_WORDS]


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


def read_record(path: Path) -> list[Mutant]:
    """The rows kept in `mutation.json`, none where there is no file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return [_row(entry) for entry in data["mutants"]]
    except FileNotFoundError:
        return []
    except (json.JSONDecodeError, KeyError, TypeError) as fault:
        raise VendoringError(
            "the record of mutation runs cannot be read",
            file=str(path),
            value=str(fault),
            remedy="remove it and run `make mutation`",
        ) from None


def _row(entry: dict[str, Any]) -> Mutant:
    known = {field.name: entry[field.name] for field in fields(Mutant)}
    known["detail"] = shortened(known["detail"])
    return Mutant(**known | {name: tuple(known[name]) for name in ("tests", "left_out")})


def write_record(new: list[Mutant], patches: tuple[Patch, ...], folder: Path) -> list[Mutant]:
    """Puts `new` in place of the rows of those patches, drops rows of patches that are gone, and
    gives all rows in the order of the series.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mutation.json"
    rows = {row.slug: row for row in [*read_record(path), *new]}
    kept = [rows[patch.slug] for patch in patches if patch.slug in rows]
    data = {"mutants": [asdict(row) for row in kept]}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = f"{_TITLE}\n\n{_INTRODUCTION}\n\n{table_text(kept, patches)}"
    (folder / "mutation.md").write_text(text, encoding="utf-8")
    return kept


def table_text(rows: list[Mutant], patches: tuple[Patch, ...]) -> str:
    """A Markdown table with a line for every patch, also for one that was never tried."""
    lines = [
        "| patch | test | with | without | verdict | date | first failure without it |",
        "|---|---|---|---|---|---|---|",
    ]
    by_slug = {row.slug: row for row in rows}
    for patch in patches:
        row = by_slug.get(patch.slug)
        if row is None:
            lines.append(f"| {patch.slug} | | | | not run | | |")
            continue
        others = ", ".join(name for name in row.left_out if name != row.slug)
        name = f"{row.slug} (with {others})" if others else row.slug
        verdict = row.verdict if row.fingerprint == fingerprint(patch) else f"{row.verdict}, stale"
        tests = " ".join(f"`{node}`" for node in row.tests)
        detail = row.detail.replace("|", "\\|")
        cells = (name, tests, row.with_patch, row.without, verdict, row.date, detail)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
