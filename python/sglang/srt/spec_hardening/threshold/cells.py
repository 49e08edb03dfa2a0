"""What is measured at start, and what the times of one cell come to. Imports without torch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .cost import CYCLE, Line

SHORT, LONG = 1024, 8192
# Without a prefix cache the context has to be prefilled: this many tokens in all, no more.
PREFILLED = 16384


class MeasureError(RuntimeError):
    """The costs could not be measured; the text says what was missing."""


@dataclass
class Lap:
    """One decode batch: when it began, and begin and end of each part that ran."""

    on: bool
    begun: Any = None
    parts: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def plan_cells(
    most_rows: int, tokens: int, longest: int, is_cached: bool, grows: int
) -> list[tuple[int, list[int]]]:
    """Two contexts, each with the numbers of rows to measure, powers of two up to the most.

    The shorter is such that `most_rows` of it fit, the longer has as many rows as fit.

    Args:
        tokens: KV tokens there are; longest: tokens a prompt may have; grows: tokens that are
        added to each row; is_cached: False if prompts have to be prefilled.

    Raises:
        MeasureError: a single row does not fit.
    """
    if not is_cached:
        tokens = min(tokens, PREFILLED + most_rows * grows)
    short = min(SHORT, longest - grows, max(tokens // most_rows - grows, 16))
    if short < 16 or short + grows > tokens:
        raise MeasureError(
            f"no room to measure a step: {tokens} KV tokens, prompts of at most {longest}, and a "
            f"request needs {16 + grows}. Give a number for the batch threshold instead of auto."
        )
    long = min(LONG, longest - grows, tokens - grows)
    contexts = [short] + ([long] if long >= 2 * short else [])
    return [(context, _powers(min(most_rows, tokens // (context + grows)))) for context in contexts]


def spread_out(counts: Sequence[int]) -> list[int]:
    """The least, the most, then those between: whatever comes last may be left out."""
    inner = list(counts[1:-1])
    return [*dict.fromkeys((counts[0], counts[-1])), *inner[::2], *inner[1::2]]


def phases(
    laps: Sequence[Lap], seconds: Callable[[Any, Any], float], warm: int, owed_tokens: int
) -> dict[str, float]:
    """Seconds of each phase, and `owed`, from the laps of one cell: the middle one of all timed.

    Args:
        seconds: between two marks; warm: laps of either kind that are left out at its beginning;
        owed_tokens: plain steps after which the draft catches up.

    Raises:
        MeasureError: a phase never ran.
    """
    on = [lap for lap in laps if lap.on][warm:]
    off = [lap for lap in laps if not lap.on][warm:]
    found = {name: _middle(on, name, seconds) for name in CYCLE if name != "cycle_rest"}
    whole = statistics.median(seconds(a.begun, b.begun) for a, b in pairwise(on))
    found["cycle_rest"] = max(0.0, whole - sum(found.values()))
    found["decode"] = _middle(off, "decode", seconds)
    steps = [seconds(a.begun, b.begun) for a, b in pairwise(off) if "catch_up" not in a.parts]
    owed = min(seconds(*lap.parts["catch_up"]) for lap in off if "catch_up" in lap.parts)
    rest = max(0.0, statistics.median(steps) - found["decode"])
    found["owed"] = owed / owed_tokens
    found["decode_rest"] = rest + found["owed"]
    return found


def _middle(laps: Sequence[Lap], name: str, seconds: Callable[[Any, Any], float]) -> float:
    took = [seconds(*lap.parts[name]) for lap in laps if name in lap.parts]
    if not took:
        raise MeasureError(f"no {name} ran in {len(laps)} batches that were to be timed")
    return statistics.median(took)


def line_of(context: int, cells: Mapping[int, Mapping[str, float]]) -> Line:
    """The table's line of the cells of one context, by number of rows."""
    rows = sorted(cells)
    values = {name: tuple(cells[count][name] for count in rows) for name in cells[rows[0]]}
    owed = values.pop("owed", ())
    return Line(context, tuple(rows), values, owed)


def _powers(most: int) -> list[int]:
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]
