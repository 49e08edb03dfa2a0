"""Two runs against each other: is B as fast as A, and does it find the speedups that A found?

Speeds of two runs differ with the host's mood; a speedup is a quotient within a run, so it should
not. Whether two of them agree is told by the rounds of either run (Welch's test of the logarithms).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import statistics, table
from .runfile import Run

DOUBT = 0.05


@dataclass(frozen=True)
class Pair:
    """A side and cell of both runs. `ratio` is B over A, None where it is not compared (`why`).

    `speedups` are those against the baseline of either run, `chance` how likely rounds as unlike as
    these are if the true speedup is one; None of a baseline, or with fewer than two rounds.
    """

    side: str
    cell: str
    ratio: Mapping[str, Any] | None
    accept_lengths: tuple[float | None, float | None]
    why: str = ""
    speedups: tuple[float, float] | None = None
    chance: float | None = None

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
    found = Pair(side, cell, table.paired(speeds[1], speeds[0]), lengths)
    logarithms = [_speedups(run, side, cell) for run in (first, second)]
    if not all(logarithms):
        return found
    a, b = (math.exp(sum(values) / len(values)) for values in logarithms)
    return replace(found, speedups=(a, b), chance=statistics.chance(*logarithms))


def agree(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Pairs whose speedups agree within their spread, and those that do not.

    True speedups that are alike are called so in 95 of 100 comparisons of all pairs together, so
    each is asked more strictly the more there are (Bonferroni).
    """
    told = [one for one in pairs if one.chance is not None]
    least = DOUBT / max(len(told), 1)
    yes = [one for one in told if one.chance is not None and one.chance >= least]
    return yes, [one for one in told if one not in yes]


def _speedups(run: Run, side: str, cell: str) -> list[float]:
    """Logarithms by round; empty of the baseline, or if something of it is invalid."""
    base = run.header["settings"]["sides"][0]
    measured = [one for one in run.measurements.values() if one["cell"] == cell]
    if side == base or any(one["invalid"] for one in measured if one["side"] in (side, base)):
        return []
    own, other = _speeds(run, side, cell), _speeds(run, base, cell)
    return [math.log(own[place] / other[place]) for place in own if place in other]


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
