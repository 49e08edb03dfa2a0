"""What happened between two snapshots: rates from counters only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .snapshot import Snapshot


@dataclass(frozen=True)
class Rates:
    """`accept_length` and rates are None where nothing was proposed; `positions` are pairs of
    position and accept rate; `phases` milliseconds of the mean cycle, `cycle_ms` their sum."""

    seconds: float
    cycles_s: float
    tokens_s: float
    accept_length: float | None
    accept_rate: float | None
    positions: tuple[tuple[int, float], ...]
    off: float | None
    cycle_ms: float | None
    phases: Mapping[str, float]


def between(before: Snapshot, after: Snapshot) -> Rates:
    """Rates of the interval; a server that was started anew in between counts from its start."""
    seconds = max(after.at - before.at, 1e-9)
    old, new = _counts(before), _counts(after)
    if any(new[key] < old.get(key, 0) for key in new):
        old = {}
    grown = {key: value - old.get(key, 0) for key, value in new.items()}
    cycles = sum(v for k, v in grown.items() if k[0] == "cycles" and k[1] != "0")
    all_cycles = sum(v for k, v in grown.items() if k[0] == "cycles")
    proposed = _by_position(grown, "proposed")
    correct = _by_position(grown, "correct")
    drafts = sum(correct.values())
    on, off = grown.get(("seconds_on",), 0.0), grown.get(("seconds_off",), 0.0)
    band_cycles = sum(v for k, v in grown.items() if k[0] == "band")
    phases = {k[1]: 0.0 for k in grown if k[0] == "phase"}
    for key, value in grown.items():
        if key[0] == "phase" and band_cycles:
            phases[key[1]] += value / band_cycles
    plain = grown.get(("plain_cycles",), 0)
    return Rates(
        seconds=seconds,
        cycles_s=all_cycles / seconds,
        tokens_s=(all_cycles + drafts + plain) / seconds,
        accept_length=1 + drafts / cycles if cycles else None,
        accept_rate=drafts / sum(proposed.values()) if any(proposed.values()) else None,
        positions=tuple((at, correct[at] / count) for at, count in proposed.items() if count),
        off=off / (on + off) if on + off > 0 else None,
        cycle_ms=sum(phases.values()) if band_cycles else None,
        phases={name: ms for name, ms in phases.items() if ms},
    )


def _by_position(grown: Mapping[tuple[str, ...], float], what: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for key, value in grown.items():
        if key[0] == what:
            found[int(key[2])] = found.get(int(key[2]), 0) + value
    return dict(sorted(found.items()))


def _counts(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    """Every counter of a snapshot by its name and labels, over all schedulers."""
    found: dict[tuple[str, ...], float] = {}

    def add(value: float, *key: str) -> None:
        found[key] = found.get(key, 0) + value

    for rank in snapshot.ranks:
        watched: Mapping[str, Any] = rank.get("speculation") or {}
        counts = watched.get("acceptance", {})
        for steps, count in counts.get("verify_cycles", {}).items():
            add(count, "cycles", str(steps))
        for name in ("plain_cycles", "seconds_on", "seconds_off"):
            add(counts.get(name, 0), name)
        for place in counts.get("positions", ()):
            for what in ("proposed", "correct"):
                add(place[what], what, str(place["num_steps"]), str(place["position"]))
        for size, band in watched.get("phases", {}).items():
            add(band["cycles"], "band", size)
            for phase, ms in band["phases_ms"].items():
                add(ms * band["cycles"], "phase", phase, size)
    return found
