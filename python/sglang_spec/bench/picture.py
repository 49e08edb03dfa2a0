"""The plot of a results file: tokens a second by concurrency, a panel for each context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import figures, statistics
from .mode import KNOWN

_LOOK = {
    "none": ("#555555", "o", "--"),
    "static": ("#c2410c", "s", "--"),
    "adaptive": ("#7c3aed", "^", "--"),
    "threshold": ("#0e7490", "v", "-"),
    "auto": ("#15803d", "D", "-"),
    "static-decode": ("#c2410c", "s", ":"),
    "auto-decode": ("#15803d", "D", ":"),
}


def draw(visits: Sequence[Mapping[str, Any]], target: Path) -> None:
    """One row of panels for each configuration that has steady measurements."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = [row for row in _rows(visits) if row[1]]
    if not rows:
        return
    wide = max(len(panels) for _, panels in rows)
    figure, axes = pyplot.subplots(
        len(rows), wide, figsize=(5.2 * wide, 3.9 * len(rows)), squeeze=False
    )
    for line, (name, panels) in zip(axes, rows, strict=True):
        for place in line[len(panels) :]:
            place.set_visible(False)
        for place, (context, cells) in zip(line, sorted(panels.items()), strict=False):
            _panel(place, cells)
            place.set_title(f"{name}\n{context} tokens of context", fontsize=9)
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)
    pyplot.close(figure)


def _rows(visits: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[int, Any]]]:
    names = sorted({figures.configuration(visit["settings"]) for visit in visits})
    rows = []
    for name in names:
        there = [v for v in visits if figures.configuration(v["settings"]) == name]
        panels: dict[int, Any] = {}
        for context, concurrency, modes in figures.steady(figures.samples(there)):
            for mode, measured in modes.items():
                values = [float(one["tok_s"]) for one in measured.values()]
                panels.setdefault(context, {}).setdefault(mode, {})[concurrency] = values
        rows.append((name, panels))
    return rows


def _panel(place: Any, cells: Mapping[str, Mapping[int, list[float]]]) -> None:
    for mode in KNOWN:
        if mode not in cells:
            continue
        colour, marker, line = _LOOK[mode]
        points = sorted(cells[mode].items())
        bars = [statistics.spread(values) for _, values in points]
        place.errorbar(
            [concurrency for concurrency, _ in points],
            [bar["mean"] for bar in bars],
            yerr=[bar["half_width"] for bar in bars],
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=4,
            capsize=2,
            label=mode,
        )
    place.set_xscale("log", base=2)
    place.set_yscale("log", base=2)
    counts = sorted({count for line in cells.values() for count in line})
    place.set_xticks(counts, [str(count) for count in counts])
    place.yaxis.set_major_formatter("{x:.0f}")
    place.set_xlabel("requests at a time")
    place.set_ylabel("output tokens a second")
    place.grid(alpha=0.3)
    place.legend(fontsize=8)
