"""A Grafana dashboard drawn by matplotlib from what Prometheus has: each panel at its place.

Not Grafana: its units, value mappings, thresholds, stacking, minimum and maximum are read from the
JSON, and its layout of 24 columns. Enough to see what a person would see of the data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# (query) -> series by the API of `query_range`: {"metric": labels, "values": [[seconds, text]]}
AskRange = Callable[[str], list[dict[str, Any]]]
COLOURS = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d", "#555555")
COLUMNS = 24
FACTORS = {"percentunit": 100.0, "s": 1000.0}
UNITS = {"percentunit": " %", "s": " ms"}


def draw(dashboard: Mapping[str, Any], ask: AskRange, target: Path) -> dict[str, int]:
    """The picture at `target`; how many series each panel has, by its title."""
    from matplotlib.figure import Figure

    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(16, rows * 0.42), facecolor="#f4f5f5")
    found = {}
    for panel in panels:
        place, pad = panel["gridPos"], 0.012
        axes = figure.add_axes(
            (
                place["x"] / COLUMNS + 3 * pad,
                1 - (place["y"] + place["h"]) / rows + 2.6 * pad,
                place["w"] / COLUMNS - 4 * pad,
                place["h"] / rows - 4.6 * pad,
            )
        )
        axes.set_title(panel["title"], fontsize=9, loc="left", fontweight="bold")
        series = lines(panel, ask)
        (_stat if panel["type"] == "stat" else _timeseries)(axes, panel, series)
        found[panel["title"]] = len(series)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=80)
    return found


def lines(panel: Mapping[str, Any], ask: AskRange) -> dict[str, list[tuple[float, float]]]:
    """Points by the name in the legend, in the order of the panel's queries."""
    named: dict[str, list[tuple[float, float]]] = {}
    for target in panel["targets"]:
        for one in ask(target["expr"]):
            labels = one["metric"]
            text = re.sub(
                r"{{(\w+)}}", lambda m, told=labels: told.get(m[1], ""), target["legendFormat"]
            )
            named[text] = [(float(moment), float(value)) for moment, value in one["values"]]
    return named


def _stat(axes: Any, panel: Mapping[str, Any], series: Mapping[str, Any]) -> None:
    """The last value of the first series, by the mapping that it has."""
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_xticks([]), axes.set_yticks([])
    if not series:
        axes.text(0.5, 0.5, "No data", ha="center", va="center")
        return
    value = next(iter(series.values()))[-1][1]
    unit = defaults["unit"]
    text = f"{value * FACTORS.get(unit, 1.0):.3g}{UNITS.get(unit, '')}"
    colour = defaults["thresholds"]["steps"][0]["color"]
    for step in defaults["thresholds"]["steps"]:
        if step["value"] is not None and value >= step["value"]:
            colour = step["color"]
    for mapping in defaults["mappings"]:
        if (mapped := mapping["options"].get(f"{value:g}")) is not None:
            text, colour = mapped["text"], mapped["color"]
    axes.set_facecolor(colour)
    axes.patch.set_alpha(0.35)
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=17)


def _timeseries(axes: Any, panel: Mapping[str, Any], series: Mapping[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    factor, unit = FACTORS.get(defaults["unit"], 1.0), UNITS.get(defaults["unit"], "")
    begun = min((points[0][0] for points in series.values()), default=0.0)
    stacked = defaults["custom"]["stacking"]["mode"] != "none"
    ground: dict[float, float] = {}
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        x = [moment - begun for moment, _ in points]
        low = [ground.get(moment, 0.0) for moment, _ in points] if stacked else [0.0] * len(x)
        y = [factor * value + base for (_, value), base in zip(points, low, strict=True)]
        axes.plot(x, y, color=colour, linewidth=1.2, label=name)
        if stacked:
            axes.fill_between(x, low, y, color=colour, alpha=0.3)
            ground.update({moment: top for (moment, _), top in zip(points, y, strict=True)})
    bounds = {"bottom": defaults.get("min"), "top": defaults.get("max")}
    axes.set_ylim(**{k: v * factor for k, v in bounds.items() if v is not None})
    axes.tick_params(labelsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
    axes.grid(alpha=0.3)
    if series:
        axes.legend(fontsize=7, loc="upper left", ncols=2)
