"""Tokens a second for each request against those of all: which settings are on the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..bench import curves


class Place(NamedTuple):
    """A side under a load; `each` and `total` in tokens a second."""

    each: float
    total: float
    side: str
    concurrency: int


def places(cells: Mapping[str, Any]) -> dict[int, list[Place]]:
    """context -> all valid closed-loop measurements."""
    found: dict[int, list[Place]] = {}
    for cell, sides in cells.items():
        context, closed, concurrency = cell.partition("x")
        for name, one in sides.items() if closed else ():
            if one["valid"] and one["tok_s"]:
                total = float(one["tok_s"]["mean"])
                place = Place(total / int(concurrency), total, name, int(concurrency))
                found.setdefault(int(context), []).append(place)
    return found


def frontier(found: Sequence[Place]) -> list[Place]:
    """Those that no other beats in both; the fastest for each request first."""
    edge: list[Place] = []
    for place in sorted(found, key=lambda one: (-one.each, -one.total)):
        if not edge or place.total > edge[-1].total:
            edge.append(place)
    return edge


def draw(made: Mapping[str, Any], target: Path) -> bool:
    """A panel a context, a line a side, the frontier in black; False with nothing to draw."""
    panels = places(made["cells"])
    if not panels:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.8 * len(panels), 4.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (context, found) in zip(axes, sorted(panels.items()), strict=True):
        for number, side in enumerate(dict.fromkeys(place.side for place in found)):
            line = sorted(place for place in found if place.side == side)
            axis.plot(
                [place.each for place in line],
                [place.total for place in line],
                color=curves.COLOURS[number % len(curves.COLOURS)],
                marker="o",
                markersize=4,
                alpha=0.7,
                label=side,
            )
        edge = frontier(found)
        axis.plot(
            [place.each for place in edge],
            [place.total for place in edge],
            color="black",
            linewidth=1,
            linestyle=":",
            label="frontier",
        )
        for place in edge:
            axis.annotate(str(place.concurrency), place[:2], fontsize=7, xytext=(3, 3),
                          textcoords="offset points")  # fmt: skip
        axis.set_title(f"{context} prompt tokens (numbers: requests at a time)", fontsize=9)
        axis.set_xlabel("tokens a second for each request")
        axis.set_ylabel("tokens a second of all")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    if made["partial"]:
        figure.suptitle(f"partial: {made['partial']}", fontsize=8, color="#b91c1c")
    curves.save(figure, target, made["provenance"])
    return True
