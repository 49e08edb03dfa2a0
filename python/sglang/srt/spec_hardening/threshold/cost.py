"""What a step costs: seconds of each phase by number of rows and context length.

Made by `measure` at start on rank 0 and sent to every rank, corrected by `drift` from what live
batches take; read by `auto` before each batch.
Imports without torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

# A plain step is decode and decode_rest; a speculative cycle is the other four. The rests are what
# passes between one batch's phases and the next batch: the host's work where it is not hidden and,
# while speculation is off, the share of a deferred draft-extend.
STEP = ("decode", "decode_rest")
CYCLE = ("draft", "verify", "draft_extend", "cycle_rest")
PHASES = (*STEP, *CYCLE)


class CostError(ValueError):
    """A table that cannot be used; the text names the key and the value."""


@dataclass(frozen=True)
class Line:
    """All phases at one context length.

    `rows` ascend; `seconds[phase][i]` belongs to `rows[i]`. `owed[i]` is how much of `decode_rest`
    is the share of a deferred draft-extend, which most plain steps do not run; empty: unknown.
    """

    context: int
    rows: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]
    owed: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.context < 1:
            raise CostError(f"context: {self.context}, expected at least 1 token")
        if not self.rows or self.rows[0] < 1 or any(b <= a for a, b in pairwise(self.rows)):
            raise CostError(f"rows: {list(self.rows)}, expected ascending numbers from 1 on")
        _expect_keys("seconds", self.seconds, PHASES)
        for phase, values in self.seconds.items():
            self._check(f"seconds.{phase}", values)
        if self.owed:
            self._check("owed", self.owed)
        for total in (STEP, CYCLE):
            if any(self._sum(total, i) <= 0 for i in range(len(self.rows))):
                raise CostError(f"{' + '.join(total)}: 0 seconds, expected more")

    def at(self, phases: Sequence[str], rows: int) -> float:
        """Seconds of the sum of `phases`: linear between two measured rows and past the last."""
        right = min(max(bisect_left(self.rows, rows), 1), len(self.rows) - 1)
        if len(self.rows) == 1 or rows <= self.rows[0]:
            return self._sum(phases, 0)
        left = right - 1
        low, high = self._sum(phases, left), self._sum(phases, right)
        slope = (high - low) / (self.rows[right] - self.rows[left])
        if rows > self.rows[right]:  # more rows are never taken to cost less
            return high + max(slope, 0.0) * (rows - self.rows[right])
        return low + slope * (rows - self.rows[left])

    def nearest(self, rows: int) -> int:
        """The index of the measured number of rows that is the fewest doublings away."""
        return min(range(len(self.rows)), key=lambda i: abs(math.log2(self.rows[i] / rows)))

    def scaled(self, by: Callable[[int, str], float]) -> Line:
        """The line with the seconds at each index and of each phase `by` times as long."""
        seconds = {
            phase: tuple(value * by(index, phase) for index, value in enumerate(values))
            for phase, values in self.seconds.items()
        }
        owed = tuple(value * by(index, "decode_rest") for index, value in enumerate(self.owed))
        return Line(self.context, self.rows, seconds, owed)

    def _check(self, name: str, values: Sequence[float]) -> None:
        if len(values) != len(self.rows):
            raise CostError(f"{name}: {len(values)} values for {len(self.rows)} numbers of rows")
        for value in values:
            if not (math.isfinite(value) and value >= 0):
                raise CostError(f"{name}: {value}, expected seconds of at least 0")

    def _sum(self, phases: Sequence[str], index: int) -> float:
        return sum(self.seconds[phase][index] for phase in phases)


@dataclass(frozen=True)
class CostTable:
    """Lines of ascending context, for cycles that verify `num_draft_tokens` tokens a row."""

    num_draft_tokens: int
    lines: tuple[Line, ...]

    def __post_init__(self) -> None:
        if self.num_draft_tokens < 2:
            raise CostError(f"num_draft_tokens: {self.num_draft_tokens}, expected at least 2")
        contexts = [line.context for line in self.lines]
        if not contexts or any(b <= a for a, b in pairwise(contexts)):
            raise CostError(f"lines: contexts {contexts}, expected ascending ones")

    def step_seconds(self, rows: int, context: float) -> float:
        """One plain decode step of `rows` requests of `context` tokens on average."""
        return self._at(STEP, rows, context)

    def cycle_seconds(self, rows: int, context: float) -> float:
        """One speculative cycle, draft to draft-extend, of the same batch."""
        return self._at(CYCLE, rows, context)

    def phase_seconds(self, phase: str, rows: int, context: float) -> float:
        return self._at((phase,), rows, context)

    @property
    def most_rows(self) -> int:
        return max(line.rows[-1] for line in self.lines)

    def _at(self, phases: Sequence[str], rows: int, context: float) -> float:
        """Linear in the context between two lines and past the last.

        What a line of longer context adds to the one before it grows with the rows, so where the
        longer one was measured with fewer rows its addition is taken in proportion to the rows.
        """
        first = self.lines[0]
        seconds = first.at(phases, rows)
        if context <= first.context:
            return seconds
        for shorter, longer in pairwise(self.lines):
            known = min(rows, longer.rows[-1], shorter.rows[-1])
            added = longer.at(phases, known) - shorter.at(phases, known)
            span = longer.context - shorter.context
            share = (context - shorter.context) / span
            if longer is not self.lines[-1]:
                share = min(share, 1.0)
            seconds += max(added, 0.0) * share * (rows / known)
            if context <= longer.context:
                break
        return seconds

    def as_dict(self) -> dict[str, Any]:
        return {
            "num_draft_tokens": self.num_draft_tokens,
            "lines": [
                {
                    "context": line.context,
                    "rows": list(line.rows),
                    "seconds": {phase: list(line.seconds[phase]) for phase in PHASES},
                    **({"owed": list(line.owed)} if line.owed else {}),
                }
                for line in self.lines
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CostTable:
        """The table that `as_dict` gave; CostError for an unknown, missing or impossible entry."""
        _expect_keys("table", data, [field.name for field in fields(cls)])
        lines = []
        for number, line in enumerate(data["lines"]):
            known = {"owed": (), **line}
            _expect_keys(f"lines[{number}]", known, [field.name for field in fields(Line)])
            seconds = {phase: tuple(map(float, v)) for phase, v in line["seconds"].items()}
            owed = tuple(map(float, known["owed"]))
            lines.append(Line(int(line["context"]), tuple(map(int, line["rows"])), seconds, owed))
        return cls(int(data["num_draft_tokens"]), tuple(lines))


def _expect_keys(where: str, found: Mapping[str, Any], expected: Sequence[str]) -> None:
    unknown, missing = sorted(set(found) - set(expected)), sorted(set(expected) - set(found))
    if unknown:
        raise CostError(f"{where}: unknown {', '.join(unknown)}; known: {', '.join(expected)}")
    if missing:
        raise CostError(f"{where}: {', '.join(missing)} missing")
