"""The checks of a canary, from the raw lines of its run, and the verdict that follows.

Each check looks at one thing that an upgrade has broken before: output, acceptance, speed, room in
the KV cache, memory. B has to be as good as A within what the measurement can tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ..bench import compare, table
from ..bench.runfile import Run
from ..demo import acceptance

A, B = "A", "B"
# A drop of acceptance at a position counts from here on, and only if chance hardly explains it.
ACCEPTANCE_DROP = 0.02
STANDARD_ERRORS = 3.0
KV_FLOOR = 0.98
CAPACITY = "--max-total-tokens"
MEMORY_CEILING = 1.05
MEMORY_SLACK_GB = 0.2


@dataclass(frozen=True)
class Check:
    """`passed` None: it could not be checked, and does not count."""

    name: str
    passed: bool | None
    detail: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def checks(run: Run, speed_floor: float) -> list[Check]:
    """All checks in the order in which they matter."""
    cells = table.table(run)
    facts = [(run.sides.get(name) or {}).get("facts") or {} for name in (A, B)]
    return [
        _whole(run, cells),
        _tokens(cells),
        _acceptance(run, facts),
        _speed(cells, speed_floor),
        _kv_capacity(facts, [run.sides.get(name) or {} for name in (A, B)]),
        _memory(facts),
    ]


def passed(found: Iterable[Check]) -> bool:
    return all(check.passed is not False for check in found)


def _whole(run: Run, cells: Mapping[str, Any]) -> Check:
    """Every cell of both was measured, and validly; unequal output is the next check's."""
    missing = [
        cell for cell in run.header["settings"]["cells"] if {A, B} - set(cells.get(cell, {}))
    ]
    invalid = [
        f"{name} in {cell}: {why}"
        for cell, sides in cells.items()
        for name, one in sides.items()
        for why in one["invalid"]
        if not why.startswith("unequal output")
    ]
    if missing or invalid or run.partial:
        told = [*invalid, *(f"{cell} was not measured on both" for cell in missing)]
        return Check("measurement", False, "; ".join(told) or f"partial: {run.partial}")
    return Check("measurement", True, f"{len(run.measurements)} measurements, all valid")


def _tokens(cells: Mapping[str, Any]) -> Check:
    told = [one for sides in cells.values() if (one := (sides.get(B) or {}).get("equality"))]
    counts = {
        name: sum(one[name] for one in told) for name in ("compared", "equal", "ties", "wrong")
    }
    if not counts["compared"]:
        return Check("tokens", None, "no answers were compared")
    detail = f"{counts['equal']} of {counts['compared']} answers are A's"
    detail += f", {counts['ties']} up to a tie" if counts["ties"] else ""
    if counts["wrong"]:
        reasons = [why for sides in cells.values() for why in (sides.get(B) or {"invalid": []})
                   ["invalid"] if why.startswith("unequal output")]  # fmt: skip
        return Check("tokens", False, f"{detail}; {'; '.join(reasons)}", counts)
    return Check("tokens", True, detail, counts)


def _acceptance(run: Run, facts: Sequence[Mapping[str, Any]]) -> Check:
    pooled = [_histogram(run, name) for name in (A, B)]
    if not all(map(sum, pooled)):
        return Check("acceptance", None, "one of the two did not speculate")
    shares = [acceptance.position_acceptance(histogram) for histogram in pooled]
    lengths = [acceptance.accept_length(histogram) for histogram in pooled]
    figures = {
        "accept_length": [round(length, 4) for length in lengths],
        "position_acceptance": [[round(one, 4) for one in side] for side in shares],
    }
    detail = f"accept length {lengths[0]:.3f} and {lengths[1]:.3f}"
    keys = ("num_steps", "topk", "num_draft_tokens")
    if any(facts[0].get(key) != facts[1].get(key) for key in keys):
        return Check(
            "acceptance", None, f"{detail}; the settings differ, so speed decides", figures
        )
    counts = [sum(histogram) for histogram in pooled]
    # A histogram ends with the most drafts that were accepted at once: beyond it none were.
    positions = enumerate(zip_longest(*shares, fillvalue=0.0), 1)
    drops = [
        f"position {position}: {one:.3f} to {two:.3f}"
        for position, (one, two) in positions
        if one - two > max(ACCEPTANCE_DROP, STANDARD_ERRORS * _error(one, two, counts))
    ]
    return Check("acceptance", not drops, "; ".join([detail, *drops]), figures)


def _histogram(run: Run, name: str) -> list[int]:
    return acceptance.pool(
        entry["histogram"]
        for entry in run.measurements.values()
        if entry["side"] == name and "histogram" in entry
    )


def _error(one: float, two: float, counts: Sequence[int]) -> float:
    """Standard error of a difference of two shares of so many cycles."""
    share = (one * counts[0] + two * counts[1]) / sum(counts)
    return math.sqrt(share * (1 - share) * (1 / counts[0] + 1 / counts[1]))


def _speed(cells: Mapping[str, Any], floor: float) -> Check:
    pairs = [
        compare.Pair(B, cell, sides[B]["speedup"], (None, None))
        for cell, sides in cells.items()
        if B in sides and sides[B]["speedup"] is not None
    ]
    if not pairs:
        return Check("speed", None, "nothing valid to compare")
    ratios = {pair.cell: dict(pair.ratio or {}) for pair in pairs}
    slow = [pair for pair in pairs if pair.fails(floor)]
    worst = min(pairs, key=lambda pair: pair.ratio["ratio"] if pair.ratio else 1.0)
    detail = f"B over A at worst {ratios[worst.cell]['ratio']:.3f} ({worst.cell})"
    if slow:
        detail += f"; below {floor:g}, spread apart, in {', '.join(pair.cell for pair in slow)}"
    return Check("speed", not slow, detail, ratios)


def _kv_capacity(facts: Sequence[Mapping[str, Any]], sides: Sequence[Mapping[str, Any]]) -> Check:
    one, two = (side.get("kv_tokens") for side in facts)
    if not one or not two:
        return Check("KV capacity", None, "a server does not say it")
    figures = {"tokens": [one, two]}
    if one == two and all(map(_fixed, sides)):
        return Check(
            "KV capacity", None, f"{one} tokens by {CAPACITY}, which tells nothing", figures
        )
    return Check(
        "KV capacity", two >= KV_FLOOR * one, f"{one} and {two} tokens, {two / one:.3f}", figures
    )


def _fixed(side: Mapping[str, Any]) -> bool:
    """Whether the room was given by a flag: on a CPU, and for servers that share a GPU."""
    return CAPACITY in ((side.get("settings") or {}).get("command") or "").split()


def _memory(facts: Sequence[Mapping[str, Any]]) -> Check:
    """Weights and graphs; the KV cache takes what is left, so it is a check of its own."""
    totals = [gigabytes(side.get("memory") or {}) for side in facts]
    one, two = totals
    if one is None or two is None:
        return Check("memory", None, "a server does not say it")
    detail = f"weights and graphs {one:.2f} GB and {two:.2f} GB"
    fits = two <= MEMORY_CEILING * one + MEMORY_SLACK_GB
    return Check("memory", fits, detail, {"gigabytes": [one, two]})


def gigabytes(memory: Mapping[str, Any]) -> float | None:
    """GB of weights and graphs in `memory_usage` of `/server_info`."""
    weight, graph = memory.get("weight"), memory.get("graph") or 0.0
    if weight is None:
        return None
    graphs = sum(value or 0.0 for value in graph.values()) if isinstance(graph, dict) else graph
    return round(float(weight) + float(graphs), 3)
