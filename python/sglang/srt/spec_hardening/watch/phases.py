"""Where the time of a decode cycle goes: seconds by phase, per band of batch sizes.

The phases of a cycle follow each other without a gap, so that their sum is the cycle. Imports
without torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# From the end of the cycle before, where requests of it go on and no prefill came between.
WAIT = "wait"
# What a forward needs: allocation, metadata, input buffers of graphs.
PREPARE = "prepare"
DRAFT = "draft"
# The target's forward; what is done with its logits is SAMPLE.
VERIFY = "verify"
SAMPLE = "sample"
DRAFT_EXTEND = "draft_extend"
# The target's forward of a step without speculation (batch threshold).
DECODE = "decode"

PHASES = (WAIT, PREPARE, DRAFT, VERIFY, SAMPLE, DRAFT_EXTEND, DECODE)

# Upper edges of the bands; larger batches are one more.
EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def band(rows: int) -> str:
    """The band of a batch of `rows` requests, as a label: `1`, `2`, `3-4`, `5-8`, …, `257+`."""
    lower = 1
    for edge in EDGES:
        if rows <= edge:
            return str(edge) if lower == edge else f"{lower}-{edge}"
        lower = edge + 1
    return f"{lower}+"


@dataclass(frozen=True)
class Cycle:
    """One cycle that is over: its requests, and seconds by phase."""

    rows: int
    seconds: Mapping[str, float]


@dataclass
class Sums:
    """Cycles, and their seconds by phase."""

    cycles: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, cycle: Cycle) -> None:
        self.cycles += 1
        for phase, seconds in cycle.seconds.items():
            self.seconds[phase] += seconds

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    def details(self) -> dict[str, Any]:
        """Mean milliseconds of a cycle and of its phases, in their order; for /server_info."""
        return {
            "cycles": self.cycles,
            "cycle_ms": _milliseconds(self.total, self.cycles),
            "phases_ms": {
                phase: _milliseconds(self.seconds[phase], self.cycles)
                for phase in PHASES
                if phase in self.seconds
            },
        }

    def line(self) -> str:
        """`verify 95.2 % of 11.8 ms, draft 2.9 %, …`, the longest first; empty without a cycle."""
        total = self.total
        if not total:
            return ""
        longest, *others = sorted(self.seconds.items(), key=lambda item: -item[1])
        parts = [f"{longest[0]} {longest[1] / total:.1%} of {1e3 * total / self.cycles:.1f} ms"]
        parts += [f"{phase} {seconds / total:.1%}" for phase, seconds in others if seconds]
        return ", ".join(parts).replace("%", " %")


@dataclass
class Phases:
    """The cycles of a rank since it serves, and those since the last line of the log."""

    bands: dict[str, Sums] = field(default_factory=dict)
    recent: Sums = field(default_factory=Sums)

    def add(self, cycle: Cycle) -> None:
        self.bands.setdefault(band(cycle.rows), Sums()).add(cycle)
        self.recent.add(cycle)

    def take_line(self) -> str:
        """`Sums.line` of the cycles since the last call."""
        line, self.recent = self.recent.line(), Sums()
        return line

    def details(self) -> dict[str, Any]:
        """`Sums.details` of each band, small batches first."""
        lower = {name: int(name.rstrip("+").split("-")[0]) for name in self.bands}
        return {name: self.bands[name].details() for name in sorted(lower, key=lower.__getitem__)}


def _milliseconds(seconds: float, cycles: int) -> float:
    return round(1e3 * seconds / cycles, 4) if cycles else 0.0
