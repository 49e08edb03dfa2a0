"""Two runs against each other: is B as fast as A, where both measured the same?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import table
from .runfile import Run


@dataclass(frozen=True)
class Pair:
    """A side and cell of both runs. `ratio` is B over A, None where it is not compared (`why`)."""

    side: str
    cell: str
    ratio: Mapping[str, Any] | None
    accept_lengths: tuple[float | None, float | None]
    why: str = ""

    def fails(self, floor: float) -> bool:
        """Slower than the floor, and not only by the spread of the rounds.

        With a single round on either side there is no spread, and the ratio itself decides.
        """
        if self.ratio is None:
            return False
        highest = self.ratio["high"] if self.ratio["high"] is not None else self.ratio["ratio"]
        return bool(self.ratio["ratio"] < floor and highest < max(floor, 1.0))


def compare(first: Run, second: Run) -> list[Pair]:
    """All sides and cells of either run, in the order of the first."""
    tables = table.table(first), table.table(second)
    places = dict.fromkeys(
        (side, cell) for found in tables for cell, sides in found.items() for side in sides
    )
    return [_pair(first, second, tables, side, cell) for side, cell in places]


def _pair(
    first: Run, second: Run, tables: tuple[dict[str, Any], dict[str, Any]], side: str, cell: str
) -> Pair:
    one, two = (found.get(cell, {}).get(side) for found in tables)
    lengths = (one or {}).get("accept_length"), (two or {}).get("accept_length")
    for name, figures in (("A", one), ("B", two)):
        if figures is None:
            return Pair(side, cell, None, lengths, f"not measured in {name}")
        if not figures["valid"]:
            return Pair(side, cell, None, lengths, f"invalid in {name}: {figures['invalid'][0]}")
    speeds = [
        {(name, *place): value for place, value in _speeds(run, side, cell).items()}
        for name, run in (("A", first), ("B", second))
    ]
    return Pair(side, cell, table.paired(speeds[1], speeds[0]), lengths)


def _speeds(run: Run, side: str, cell: str) -> dict[Any, float]:
    entries = [
        entry
        for entry in run.measurements.values()
        if (entry["side"], entry["cell"]) == (side, cell)
    ]
    return table.by_place(entries)


def differences(first: Run, second: Run) -> list[str]:
    """What else differs between the runs and may be the reason: host, packages, pin, texts."""
    found = []
    for name in ("host", "pin", "checkpoints"):
        one, two = first.header[name], second.header[name]
        found += [f"{name}.{key}: {one.get(key)} and {two.get(key)}"
                  for key in one if one.get(key) != two.get(key)]  # fmt: skip
    texts = [run.header["settings"]["corpus"]["sha256"] for run in (first, second)]
    if texts[0] != texts[1]:
        found.append("the prompts are other texts")
    found += [f"{name} is partial: {run.partial}"
              for name, run in (("A", first), ("B", second)) if run.partial]  # fmt: skip
    return found
