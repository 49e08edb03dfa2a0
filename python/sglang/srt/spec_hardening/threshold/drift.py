"""How much slower or faster than at start this machine is now: a table from live batches.

Rank 0 adds the seconds of live steps and cycles; each is compared with what the table of the start
says of such a batch, and kept with the cell of that table that is nearest. Once in `every` batches
it is looked whether a cell has changed. The decision itself knows nothing of this: it reads the
table that all ranks were sent (`exchange`). Imports without torch.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from .cost import CYCLE, CostTable, Line


@dataclass(frozen=True)
class Pace:
    """When a change counts. All times are in decode batches.

    A cell changes where at least `fewest` samples of the last `fresh` batches are in their middle
    `least` away from what is in use, and more of them lie on that side than chance explains: of
    samples that scatter by 20 % a shift of 5 % is none. It changes by a factor of `most` at a look,
    and never leaves `1/limit … limit`; a single sample beyond that counts as the limit.
    """

    every: int = 64
    fewest: int = 8
    window: int = 64
    fresh: int = 512
    stale: int = 4096
    least: float = 0.05
    most: float = 1.5
    limit: float = 8.0
    # Standard deviations by which the samples on one side outnumber a half.
    sure: float = 2.5


class Cell(NamedTuple):
    """A cell of the table, for one kind of batch."""

    speculative: bool
    line: int
    at: int


@dataclass
class _Seen:
    """Samples of one cell as (batch, ratio), the ratio made of them, and at which batch it was."""

    samples: deque[tuple[int, float]]
    ratio: float | None = None
    last: int = 0


@dataclass
class Drift:
    """Ratios of measured to tabled seconds, by cell. One for each server, on rank 0.

    Attributes:
        start: the table measured at start, which ratios refer to.
        samples: batches that were timed and taken.
    """

    start: CostTable
    pace: Pace = field(default_factory=Pace)
    samples: int = 0
    _batch: int = 0
    _looked: int = 0
    _seen: dict[Cell, _Seen] = field(default_factory=dict)
    _in_use: dict[Cell, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._in_use = dict.fromkeys(self._cells(), 1.0)

    def batch(self) -> None:
        """One more decode batch, timed or not."""
        self._batch += 1

    def add(self, speculative: bool, rows: int, context: float, seconds: float) -> None:
        """One batch from its begin to that of the next, a catching-up of the draft not in it.

        Args:
            rows: its requests; context: their tokens on average; seconds: what it took. What is no
            positive number is left out.
        """
        if rows < 1 or not (math.isfinite(seconds) and seconds > 0):
            return
        cell = self._nearest_cell(speculative, rows, max(context, 1.0))
        if speculative:
            expected = self.start.cycle_seconds(rows, context)
        else:
            owed = self.start.lines[cell.line].owed
            step = self.start.step_seconds(rows, context)
            expected = max(step - (owed[cell.at] if owed else 0.0), 0.1 * step)
        limit = self.pace.limit
        ratio = min(max(seconds / expected, 1 / limit), limit)
        seen = self._seen.setdefault(cell, _Seen(deque(maxlen=self.pace.window)))
        seen.samples.append((self._batch, ratio))
        self.samples += 1

    def look(self) -> CostTable | None:
        """The table as it is now, if it is time to look and something has changed."""
        if self._batch - self._looked < self.pace.every:
            return None
        self._looked = self._batch
        found = {cell: self._judged(self._in_use[cell], seen) for cell, seen in self._seen.items()}
        for cell, ratio in found.items():
            if ratio is not None:
                self._seen[cell].ratio, self._seen[cell].last = ratio, self._batch
        ratios = {cell: self._ratio(cell) for cell in self._in_use}
        least = self.pace.least
        if all(abs(ratio / self._in_use[cell] - 1) <= least for cell, ratio in ratios.items()):
            return None
        self._in_use = ratios
        return self._table()

    def _table(self) -> CostTable:
        """The start's, each cell scaled by the ratio in use."""

        def line(number: int, of: Line) -> Line:
            return of.scaled(lambda at, phase: self._in_use[Cell(phase in CYCLE, number, at)])

        lines = tuple(line(number, of) for number, of in enumerate(self.start.lines))
        return CostTable(self.start.num_draft_tokens, lines)

    def _judged(self, present: float, seen: _Seen) -> float | None:
        """A cell's ratio from its samples; None if there are too few."""
        pace = self.pace
        ratios = [ratio for at, ratio in seen.samples if self._batch - at <= pace.fresh]
        if len(ratios) < pace.fewest:
            return None
        middle = statistics.median(ratios)
        beyond = sum((ratio > present) == (middle > present) for ratio in ratios)
        is_sure = beyond >= len(ratios) / 2 + pace.sure * math.sqrt(len(ratios)) / 2
        if not is_sure or abs(middle / present - 1) <= pace.least:
            return present
        return min(max(middle, present / pace.most), present * pace.most)

    def _ratio(self, cell: Cell) -> float:
        """What a cell has, or else the nearest of its kind; cells not judged for long follow those
        that were. A kind of which none was judged lately is as at start: what made it slow may be
        gone, and it might be used too seldom ever to show that."""
        known = {
            one: seen
            for one, seen in self._seen.items()
            if one.speculative == cell.speculative and seen.ratio is not None
        }
        lately = [one for one, seen in known.items() if self._batch - seen.last <= self.pace.stale]
        if not lately:
            return 1.0
        nearest = min(lately, key=lambda one: (self._distance(cell, one), one))
        ratio = known[nearest].ratio
        assert ratio is not None
        return ratio

    def _distance(self, one: Cell, other: Cell) -> float:
        """In doublings of requests and of context."""
        ours, theirs = self.start.lines[one.line], self.start.lines[other.line]
        rows = ours.rows[one.at] / theirs.rows[other.at]
        return abs(math.log2(rows)) + abs(math.log2(ours.context / theirs.context))

    def _nearest_cell(self, speculative: bool, rows: int, context: float) -> Cell:
        lines = self.start.lines
        line = min(range(len(lines)), key=lambda n: abs(math.log2(lines[n].context / context)))
        return Cell(speculative, line, lines[line].nearest(rows))

    def _cells(self) -> list[Cell]:
        return [
            Cell(speculative, line, at)
            for speculative in (False, True)
            for line, of in enumerate(self.start.lines)
            for at in range(len(of.rows))
        ]
