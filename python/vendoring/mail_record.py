"""The kept result of `mails`: `mails.json` and the table `mails.md` beside it."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import dataclass
from pathlib import Path

from .mail import Mail
from .record import read_rows, shortened, write_rows
from .testrun import Run

_TITLE = "# Each mail for upstream, on a whole clean upstream tree"
_INTRODUCTION = """\
Written by `make mails`; `python -m vendoring mails SLUG` renews one row. Alone: the tests that the
mail brings, with only this mail and those it comes after. Without: the same tree with the edits of
upstream's own files taken back. Together: with all mails, the last first where they allow it.
Proven is as it should be: passed, failed, passed. Stale: the mail changed after the run."""


@dataclass(frozen=True)
class Trial:
    """One mail tried. `alone`, `without` and `together` are passed, failed, skipped, timeout or
    broken (the file cannot be run as a test). `verdict` is proven (as it should be), needless (the
    tests pass without the edits), or unproven. `detail` is the first failure, `seconds` the time of
    all runs.
    """

    slug: str
    after: tuple[str, ...]
    tests: tuple[str, ...]
    alone: str
    without: str
    together: str
    verdict: str
    detail: str
    seconds: float
    date: str
    fingerprint: str

    @classmethod
    def of(
        cls, mail: Mail, folder: Path, alone: Run, without: Run, together: Run, seconds: float
    ) -> Trial:
        """The result of today; `folder` is where the mail lies."""
        if alone.outcome != "passed" or together.outcome != "passed":
            verdict = "unproven"
            detail = alone.detail if alone.outcome != "passed" else together.detail
        else:
            verdict = {"failed": "proven", "timeout": "proven", "passed": "needless"}.get(
                without.outcome, "unproven"
            )
            detail = without.detail
        return cls(
            mail.slug,
            mail.after,
            mail.tests,
            alone.outcome,
            without.outcome,
            together.outcome,
            verdict,
            shortened(detail),
            round(seconds, 1),
            datetime.date.today().isoformat(),
            fingerprint(folder / mail.file),
        )


def fingerprint(file: Path) -> str:
    """Hash of what a mail changes; its message does not count."""
    _, _, diff = file.read_bytes().partition(b"\n---\n")
    return hashlib.sha256(diff).hexdigest()[:16]


def read_record(folder: Path) -> list[Trial]:
    """The rows kept in `folder`, none where nothing was run yet."""
    return read_rows(folder / "mails.json", "mails", Trial)


def write_record(new: list[Trial], mails: list[Mail], made: Path, folder: Path) -> list[Trial]:
    """Puts `new` in place of the rows of those mails, and gives all rows in the order of `mails`,
    which lie in `made`.
    """
    rows = {row.slug: row for row in [*read_record(folder), *new]}
    kept = [rows[mail.slug] for mail in mails if mail.file and mail.slug in rows]
    write_rows(folder / "mails.json", "mails", kept)
    text = f"{_TITLE}\n\n{_INTRODUCTION}\n\n{table_text(kept, mails, made)}"
    (folder / "mails.md").write_text(text, encoding="utf-8")
    return kept


def table_text(rows: list[Trial], mails: list[Mail], made: Path) -> str:
    """A Markdown table with a line for every purpose, also for one that was never tried."""
    lines = [
        "| mail | after | alone | without | together | verdict | s | date | first failure |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    by_slug = {row.slug: row for row in rows}
    for mail in mails:
        row = by_slug.get(mail.slug)
        if mail.skipped:
            lines.append(f"| {mail.slug} | | | | | not sent | | | {_cell(mail.skipped)} |")
        elif row is None:
            lines.append(f"| {mail.slug} | | | | | not run | | | |")
        else:
            stale = row.fingerprint != fingerprint(made / mail.file)
            cells = (
                row.slug,
                ", ".join(row.after),
                row.alone,
                row.without,
                row.together,
                f"{row.verdict}, stale" if stale else row.verdict,
                f"{row.seconds:.0f}",
                row.date,
                _cell(row.detail),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
