"""Figures of a run by cell and side: speed with its spread, ratio to the baseline, acceptance.

Measurements of a side in a cell are all valid or the cell is not compared: one invalid round is
shown with its reason and makes no ratio.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ..demo import acceptance
from . import predict, statistics
from .measure import speed
from .runfile import Run

Entries = Sequence[Mapping[str, Any]]


def table(run: Run) -> dict[str, dict[str, dict[str, Any]]]:
    """cell -> side -> figures; cells and sides in the order of the settings, then of the file."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for entry in run.measurements.values():
        found[entry["cell"]][entry["side"]].append(entry)
    base = run.header["settings"]["sides"][0]
    costs = predict.cost_table(run)
    made: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in _ordered(found, run.header["settings"]["cells"]):
        sides = found[cell]
        made[cell] = {
            name: figures(sides[name], sides.get(base, []) if name != base else [])
            for name in _ordered(sides, run.header["settings"]["sides"])
        }
        for name, one in made[cell].items():
            steps = ((run.sides.get(name) or {}).get("facts") or {}).get("num_draft_tokens")
            one["predicted"] = predict.speedup(costs, cell, one["accept_length"], steps)
    return made


def figures(entries: Entries, base: Entries) -> dict[str, Any]:
    """Of one side in one cell. `speedup` is against `base` (None without valid ones on both)."""
    invalid = list(dict.fromkeys(reason for entry in entries for reason in entry["invalid"]))
    measured = [entry for entry in entries if "output_throughput" in entry]
    cycles = sum(entry["cycles"] for entry in measured)
    histogram = acceptance.pool(entry["histogram"] for entry in measured)
    correct = sum(cycles_ * (length - 1) for cycles_, length in _lengths(measured))
    return {
        "valid": not invalid,
        "invalid": invalid,
        "rounds": len(entries),
        "tok_s": statistics.spread([speed(entry) for entry in measured]) if measured else None,
        "speedup": _speedup(entries, base),
        **{
            name: _mean(measured, name)
            for name in ("mean_ttft_ms", "p99_ttft_ms", "mean_itl_ms", "p99_itl_ms", "cycles_per_s")
        },
        "accept_length": round(1 + correct / cycles, 4) if cycles else None,
        "position_acceptance": [
            round(share, 4) for share in acceptance.position_acceptance(histogram)
        ],
        "equality": _equality(measured),
    }


def paired(above: Mapping[Any, float], below: Mapping[Any, float]) -> dict[str, Any]:
    """A ratio with both of its bounds (None with too few measurements)."""
    ratio, inverse = statistics.ratio(above, below), statistics.ratio(below, above)
    high = None if inverse.low is None else 1 / inverse.low
    return {**ratio.as_dict(), "high": None if high is None else round(high, 4)}


def by_place(entries: Entries) -> dict[Any, float]:
    """Speeds by group and round, which both sides of a pair have in common."""
    return {(entry["group"], entry["round"]): speed(entry) for entry in entries}


def _speedup(entries: Entries, base: Entries) -> dict[str, Any] | None:
    if not entries or not base or any(entry["invalid"] for entry in (*entries, *base)):
        return None
    return paired(by_place(entries), by_place(base))


def _lengths(measured: Entries) -> list[tuple[int, float]]:
    return [(entry["cycles"], entry["accept_length"]) for entry in measured if entry["cycles"]]


def _mean(measured: Entries, name: str) -> float | None:
    values = [float(entry[name]) for entry in measured if name in entry]
    return round(sum(values) / len(values), 3) if values else None


def _equality(measured: Entries) -> dict[str, int] | None:
    told = [entry["equality"] for entry in measured if entry.get("equality")]
    if not told:
        return None
    counts = {name: sum(one[name] for one in told) for name in ("compared", "equal", "ties")}
    return {**counts, "wrong": sum(len(one["wrong"]) for one in told)}


def _ordered(found: Mapping[str, Any], wanted: Sequence[str]) -> list[str]:
    known = [name for name in wanted if name in found]
    return [*known, *(name for name in found if name not in known)]
