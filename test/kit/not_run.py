"""What a run of the suite left out on this host, and why, in one table at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol


class Report(Protocol):
    """The part of pytest's report of a test that is read here."""

    longrepr: object


def reason(report: Report) -> str:
    """Why a test was skipped, in the words of its skip."""
    where = report.longrepr
    text = str(where[2]) if isinstance(where, tuple) and len(where) == 3 else str(where)
    return text.removeprefix("Skipped: ")


def lines(reports: Iterable[Report]) -> list[str]:
    """One line a reason, the most frequent first, under a headline; nothing if all was run."""
    reasons = Counter(reason(report) for report in reports)
    if not reasons:
        return []
    width = len(str(max(reasons.values())))
    total = sum(reasons.values())
    return [
        f"not run on this host: {total} test{'s' * (total > 1)}",
        *(f"  {count:{width}}  {why}" for why, count in reasons.most_common()),
    ]
