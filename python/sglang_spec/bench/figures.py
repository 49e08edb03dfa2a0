"""The figures of the comparison, from the measurements of all visits.

Visits are put together where their configuration is the same (shape, backend and step count) and so
is the patch set: of older ones the measurements are kept, but they say nothing of today's code. At
the top stand the figures of the main shape; where backends differ, the worst of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import statistics
from .mode import AUTO, OFF, RIVALS, STATIC, THRESHOLD

MAIN = "llama-8b"
EDGE_BATCHES = 2000

# scene -> mode -> (visit, round) -> measurement
Samples = dict[str, dict[str, dict[tuple[int, int], Mapping[str, Any]]]]


def figures(visits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All figures; keys whose measurements are missing are None (or empty)."""
    by_configuration: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for visit in visits:
        by_configuration[configuration(visit["settings"])].append(visit)
    made = {name: _of(found) for name, found in sorted(_newest(by_configuration).items())}
    main = [found for name, found in made.items() if name.startswith(MAIN)]
    return {
        "off_vs_none": _worst(found["off_vs_none"] for found in main),
        "auto_vs_best": _worst_cells([found["auto_vs_best"] for found in main]),
        "auto_geomean": _least(found["auto_geomean"] for found in main),
        "ramp_vs_best": _worst(found["ramp_vs_best"] for found in main),
        "accept_after_return": _farthest(found["accept_after_return"] for found in made.values()),
        "switches_at_edge": _most(found["switches_at_edge"] for found in main),
        "state_memory_ratio": _most(found["state_memory_ratio"] for found in main),
        "provenance": [
            {"visit": visit["number"], "date": visit["date"], **_provenance(visit)}
            for visit in visits
        ],
        "by_configuration": made,
    }


def _newest(
    by_configuration: Mapping[str, list[Mapping[str, Any]]],
) -> dict[str, list[Mapping[str, Any]]]:
    """Of each configuration the visits with the patch set that was measured last."""
    return {
        name: [one for one in visits if _patch_set(one) == _patch_set(visits[-1])]
        for name, visits in by_configuration.items()
    }


def _patch_set(visit: Mapping[str, Any]) -> Any:
    return visit["provenance"].get("patch_set")


def configuration(settings: Mapping[str, Any]) -> str:
    """What must be equal for measurements to be put together."""
    return (
        f"{settings['shape']}, {settings['backend'] or 'default backend'}, "
        f"{settings['num_steps']} steps"
        + (f", {ranks} ranks" if (ranks := settings.get("tp", 1)) > 1 else "")
    )


def samples(visits: Iterable[Mapping[str, Any]]) -> Samples:
    found: Samples = defaultdict(lambda: defaultdict(dict))
    for visit in visits:
        for scene, modes in visit["samples"].items():
            for mode, measured in modes.items():
                for one in measured:
                    found[scene][mode][visit["number"], one["round"]] = one
    return found


def _of(visits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = samples(visits)
    cells = _auto_cells(found)
    ratios = [cell["ratio"] for line in cells.values() for cell in line.values()]
    thresholds = {visit["settings"]["threshold"] for visit in visits}
    return {
        "visits": [visit["number"] for visit in visits],
        "partial": [visit["number"] for visit in visits if visit["partial"]],
        "off_vs_none": _off_vs_none(found, max(thresholds)),
        "auto_vs_best": cells,
        "auto_geomean": round(statistics.geometric_mean(ratios), 4) if ratios else None,
        "ramp_vs_best": _ramp(found),
        "accept_after_return": _after_return(found),
        "switches_at_edge": _switches(found),
        "state_memory_ratio": _memory(visits),
        "tok_s": _speeds(found),
    }


def _rate(
    measured: Mapping[tuple[int, int], Mapping[str, Any]], key: str = "tok_s"
) -> dict[object, float]:
    return {place: float(one[key]) for place, one in measured.items() if key in one}


def _auto_cells(found: Samples) -> dict[str, dict[str, Any]]:
    """context -> concurrency -> auto against the best of the modes without a threshold."""
    cells: dict[str, dict[str, Any]] = {}
    for context, concurrency, modes in steady(found):
        if (compared := _against_best(modes)) is not None:
            cells.setdefault(str(context), {})[str(concurrency)] = compared
    return cells


def _against_best(modes: Mapping[str, Any]) -> dict[str, Any] | None:
    rivals = {mode: _rate(modes[mode]) for mode in RIVALS if modes.get(mode)}
    if not modes.get(AUTO) or not rivals:
        return None
    best = max(rivals, key=lambda mode: statistics.spread(list(rivals[mode].values()))["mean"])
    compared = statistics.ratio(_rate(modes[AUTO]), rivals[best])
    return {**compared.as_dict(), "best": best, "of": sorted(rivals)}


def _off_vs_none(found: Samples, threshold: int) -> dict[str, Any] | None:
    """Cells at or above the threshold, against a server without speculation."""
    cells: dict[str, dict[str, Any]] = {}
    for context, concurrency, modes in steady(found):
        if concurrency >= threshold and modes.get(THRESHOLD) and modes.get(OFF):
            compared = statistics.ratio(_rate(modes[THRESHOLD]), _rate(modes[OFF]))
            cells.setdefault(str(context), {})[str(concurrency)] = compared.as_dict()
    if not cells:
        return None
    all_cells = [cell for line in cells.values() for cell in line.values()]
    lows = [cell["low"] for cell in all_cells]
    return {
        "ratio": round(statistics.geometric_mean([cell["ratio"] for cell in all_cells]), 4),
        "low": None if None in lows else min(lows),
        "cells": cells,
    }


def _ramp(found: Samples) -> dict[str, Any] | None:
    of_scenes = [_against_best(modes) for scene, modes in found.items() if scene.startswith("ramp")]
    return _worst(one for one in of_scenes if one is not None)


def _after_return(found: Samples) -> float | None:
    """Accept length after a crowd has gone, over that of a server that never switched off."""
    ratios = []
    for scene, modes in found.items():
        if not scene.startswith("return") or not modes.get(STATIC):
            continue
        never_off = _rate(modes[STATIC], "accept_length")
        for mode in (THRESHOLD, AUTO):
            if (after := _rate(modes.get(mode, {}), "accept_length")) and never_off:
                ratios.append(statistics.ratio(after, never_off).ratio)
    return _farthest(round(one, 4) for one in ratios)


def _switches(found: Samples) -> float | None:
    """The most that any mode switched in `EDGE_BATCHES` batches on the edge."""
    counts = [
        EDGE_BATCHES * one["switches"] / one["batches"]
        for scene, modes in found.items()
        if scene.startswith("edge")
        for measured in modes.values()
        for one in measured.values()
        if one.get("batches")
    ]
    return round(max(counts), 1) if counts else None


def _memory(visits: Sequence[Mapping[str, Any]]) -> float | None:
    """Graphs and the rows kept for the draft, with a threshold over without one."""
    ratios = []
    for visit in visits:
        servers = visit["servers"]
        plain = servers.get(STATIC, {}).get("state_gb")
        for mode in (THRESHOLD, AUTO):
            if plain and servers.get(mode, {}).get("state_gb"):
                ratios.append(servers[mode]["state_gb"] / plain)
    return round(max(ratios), 3) if ratios else None


def _speeds(found: Samples) -> dict[str, Any]:
    return {
        scene: {
            mode: statistics.spread([float(one["tok_s"]) for one in measured.values()])
            for mode, measured in modes.items()
        }
        for scene, modes in found.items()
        if scene.startswith(("steady", "ramp"))
    }


def steady(found: Samples) -> list[tuple[int, int, Mapping[str, Any]]]:
    cells = []
    for scene, modes in found.items():
        kind, *words = scene.split()
        if kind == "steady":
            cells.append((int(words[0]), int(words[2]), modes))
    return sorted(cells, key=lambda cell: cell[:2])


def _provenance(visit: Mapping[str, Any]) -> dict[str, Any]:
    return {**visit["provenance"], "host": visit["host"], "settings": visit["settings"]}


def _worst(found: Iterable[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    there = [one for one in found if one]
    return dict(min(there, key=lambda one: one["ratio"])) if there else None


def _worst_cells(found: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    cells: dict[str, dict[str, Any]] = {}
    for table in found:
        for context, line in table.items():
            for concurrency, cell in line.items():
                kept = cells.setdefault(context, {}).setdefault(concurrency, cell)
                if cell["ratio"] < kept["ratio"]:
                    cells[context][concurrency] = cell
    return cells


def _least(found: Iterable[float | None]) -> float | None:
    return min((one for one in found if one is not None), default=None)


def _most(found: Iterable[float | None]) -> float | None:
    return max((one for one in found if one is not None), default=None)


def _farthest(found: Iterable[float | None]) -> float | None:
    return max(
        (one for one in found if one is not None), default=None, key=lambda one: abs(one - 1)
    )
