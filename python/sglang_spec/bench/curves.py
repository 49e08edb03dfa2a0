"""Tokens a second by concurrency, a panel a context: the picture of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLOURS = ("#555555", "#c2410c", "#0e7490", "#15803d", "#7c3aed", "#b45309", "#be185d", "#1d4ed8")


def draw(made: Mapping[str, Any], target: Path) -> bool:
    """The panels of `output.figures` at `target`; False where no closed-loop cell was measured.

    Invalid measurements are drawn as hollow points and joined by nothing.
    """
    panels = _panels(made)
    if not panels:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (context, sides) in zip(axes, sorted(panels.items()), strict=True):
        _panel(place, sides)
        place.set_title(f"{context} prompt tokens", fontsize=9)
    if made["partial"]:
        figure.suptitle(f"partial: {made['partial']}", fontsize=8, color="#b91c1c")
    save(figure, target, made["provenance"])
    return True


def save(figure: Any, target: Path, provenance: Mapping[str, Any]) -> None:
    """The picture with its provenance in the file's own metadata; the whole file or the one before.

    Drawing takes a second, in which the program may well be killed.
    """
    told = json.dumps(provenance)
    kind = "Description"
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(target.name + ".part")
    figure.savefig(beside, dpi=130, metadata={kind: told}, format=target.suffix[1:])
    os.replace(beside, target)


def _panels(made: Mapping[str, Any]) -> dict[int, dict[str, list[tuple[int, Any]]]]:
    panels: dict[int, dict[str, list[tuple[int, Any]]]] = {}
    for cell, sides in made["cells"].items():
        context, found, concurrency = cell.partition("x")
        for name, one in sides.items() if found else ():
            if one["tok_s"]:
                line = panels.setdefault(int(context), {}).setdefault(name, [])
                line.append((int(concurrency), one))
    return panels


def _panel(place: Any, sides: Mapping[str, list[tuple[int, Any]]]) -> None:
    for number, (name, points) in enumerate(sides.items()):
        colour = COLOURS[number % len(COLOURS)]
        valid = sorted((count, one) for count, one in points if one["valid"])
        place.errorbar(
            [count for count, _ in valid],
            [one["tok_s"]["mean"] for _, one in valid],
            yerr=[one["tok_s"]["half_width"] for _, one in valid],
            color=colour,
            marker="o",
            linestyle="--" if number == 0 else "-",
            markersize=4,
            capsize=2,
            label=name,
        )
        broken = [(count, one) for count, one in points if not one["valid"]]
        place.plot(
            [count for count, _ in broken],
            [one["tok_s"]["mean"] for _, one in broken],
            color=colour,
            marker="x",
            linestyle="",
            label=f"{name} (invalid)" if broken else None,
        )
    counts = sorted({count for points in sides.values() for count, _ in points})
    place.set_xscale("log", base=2)
    place.set_xticks(counts, [str(count) for count in counts])
    place.set_xlabel("requests at a time")
    place.set_ylabel("output tokens a second")
    place.set_ylim(bottom=0)
    place.grid(alpha=0.3)
    place.legend(fontsize=8)
