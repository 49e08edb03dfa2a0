"""The settings to use for each band of concurrency, and one launch for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .point import THRESHOLD


@dataclass(frozen=True)
class Band:
    """From `low` to `high` requests at a time of `context` tokens: `side`, launched by `flags`.

    `speedups` are those measured in the band, the baseline's own being 1; `undecided` were faster
    on average, but may not be: more rounds would tell.
    """

    context: int
    low: int
    high: int
    side: str
    flags: str
    speedups: tuple[float, ...]
    undecided: tuple[str, ...] = ()


def bands(cells: Mapping[str, Any], flags: Mapping[str, str], base: str) -> list[Band]:
    """The best side of each closed-loop cell, neighbours of one best side joined.

    A side is better than the baseline only where the low end of its speedup's interval is above 1
    (the speedup itself, with one round); else the baseline is chosen, as it has no draft to serve.
    """
    found: list[Band] = []
    for context, concurrency, sides in _closed(cells):
        side, speedup = _best(sides, base)
        open_ = tuple(name for name, ratio in _speedups(sides, base) if ratio["ratio"] > speedup)
        last = found[-1] if found else None
        if last and (last.context, last.side) == (context, side):
            found[-1] = replace(
                last,
                high=concurrency,
                speedups=(*last.speedups, speedup),
                undecided=tuple(dict.fromkeys((*last.undecided, *open_))),
            )
        else:
            line = flags.get(side, "")
            found.append(Band(context, concurrency, concurrency, side, line, (speedup,), open_))
    return found


def _best(sides: Mapping[str, Any], base: str) -> tuple[str, float]:
    best, fastest = base, 1.0
    for name, speedup in _speedups(sides, base):
        low = speedup["low"] if speedup["low"] is not None else speedup["ratio"]
        if low > 1 and speedup["ratio"] > fastest:
            best, fastest = name, speedup["ratio"]
    return best, fastest


def _speedups(sides: Mapping[str, Any], base: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The valid ones, without the baseline's."""
    return [
        (name, one["speedup"])
        for name, one in sides.items()
        if one["valid"] and one["speedup"] is not None and name != base
    ]


def launches(found: list[Band], base: str) -> dict[int, str]:
    """context -> one flag line for all its bands: the first one's, and off where none is better.

    Empty flags stand for no speculation at all.
    """
    lines: dict[int, str] = {}
    for context in dict.fromkeys(band.context for band in found):
        mine = [band for band in found if band.context == context]
        first = mine[0].flags
        after = [band.low for band in mine[1:] if band.side == base]
        if first and after and THRESHOLD not in first and mine[-1].side == base:
            first += f" {THRESHOLD} {after[-1]}"
        lines[context] = first
    return lines


def _closed(cells: Mapping[str, Any]) -> list[tuple[int, int, Mapping[str, Any]]]:
    found = []
    for cell, sides in cells.items():
        context, closed, concurrency = cell.partition("x")
        if closed:
            found.append((int(context), int(concurrency), sides))
    return sorted(found, key=lambda one: one[:2])
