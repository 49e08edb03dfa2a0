"""What a check found. Pure data; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """`skipped`: the server does not offer it; `not_run`: an earlier finding made it pointless."""

    OK = "ok"
    FINDING = "finding"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Outcome:
    """One check's result.

    `detail` is one sentence with what was seen; `remedy` what to do about a finding; `figures`
    the numbers behind it.
    """

    verdict: Verdict
    detail: str
    remedy: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


def ok(detail: str, **figures: Any) -> Outcome:
    return Outcome(Verdict.OK, detail, figures=figures)


def finding(detail: str, remedy: str, **figures: Any) -> Outcome:
    return Outcome(Verdict.FINDING, detail, remedy, figures)


def skipped(detail: str) -> Outcome:
    return Outcome(Verdict.SKIPPED, detail)


@dataclass(frozen=True)
class Row:
    """A check's name and its outcome; `seconds` of wall time it took."""

    name: str
    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class Report:
    """All rows in the order they ran; `partial` when the person interrupted."""

    url: str
    rows: Sequence[Row]
    partial: bool = False

    @property
    def passed(self) -> bool:
        return not self.partial and all(
            row.outcome.verdict in (Verdict.OK, Verdict.SKIPPED) for row in self.rows
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "passed": self.passed,
            "partial": self.partial,
            "checks": [
                {
                    "name": row.name,
                    "verdict": row.outcome.verdict.value,
                    "detail": row.outcome.detail,
                    "remedy": row.outcome.remedy,
                    "seconds": round(row.seconds, 3),
                    "figures": dict(row.outcome.figures),
                }
                for row in self.rows
            ],
        }
