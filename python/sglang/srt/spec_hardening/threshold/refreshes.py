"""The table that decides, and the one of the start: how often it was replaced, and how they differ.

Equal on every rank, as all take each table at the same batch. Imports without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .cost import CYCLE, STEP, CostTable

KINDS = {"step": STEP, "cycle": CYCLE}


@dataclass
class Refreshes:
    """What became of the table that was measured at start.

    Attributes:
        start: that table; None until it is measured.
        batches: decode batches decided since then.
        times: tables that replaced it; last: `batches` at the latest of them.
    """

    start: CostTable | None = None
    batches: int = 0
    times: int = 0
    last: int | None = None

    def came(self) -> None:
        """One more table is in use."""
        self.times += 1
        self.last = self.batches

    def ratios(self, table: CostTable, kind: str) -> list[tuple[float, ...]]:
        """For each line of the tables, how many times as long as at start a step or cycle takes."""
        assert self.start is not None
        return [
            tuple(_whole(now, kind, rows) / _whole(then, kind, rows) for rows in now.rows)
            for now, then in zip(table.lines, self.start.lines, strict=True)
        ]

    def details(self) -> dict[str, Any]:
        """For `/server_info`."""
        ago = None if self.last is None else self.batches - self.last
        return {"refreshes": self.times, "batches_since_refresh": ago}

    def words(self, table: CostTable) -> str:
        """`plain steps take 1.00 to 1.03 times as long as at start, cycles 1.56`."""
        steps, cycles = (_span(self.ratios(table, kind)) for kind in KINDS)
        return f"plain steps take {steps} times as long as at start, cycles {cycles}"


def _whole(line: Any, kind: str, rows: int) -> float:
    return float(line.at(KINDS[kind], rows))


def _span(lines: Sequence[Sequence[float]]) -> str:
    values = [value for line in lines for value in line]
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
