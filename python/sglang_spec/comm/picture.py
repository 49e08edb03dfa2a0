"""Times over sizes as a picture: a panel a set-up, a line a candidate, a band for its spread."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import canvas


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Write a PNG; PictureError where there is no matplotlib."""
    setups = results["setups"]
    figure = canvas.figure(figsize=(6.4 * len(setups), 4.8), layout="constrained")
    panels = figure.subplots(1, len(setups), sharey=True, squeeze=False)[0]
    looks = _looks([name for setup in setups.values() for name in _candidates(setup)])
    for panel, (name, setup) in zip(panels, setups.items(), strict=True):
        _panel(panel, f"{name} (plain: {setup['plain']})", setup["microseconds"], looks)
    panels[0].set_ylabel("microseconds of one all-reduce")
    about = results["provenance"]
    gpus = f"{len(about['gpus'])}x {about['gpus'][0]}" if about["gpus"] else about["device"]
    figure.suptitle(f"{gpus}, {about['ranks']} ranks, in graphs, {about['date'][:10]}")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _candidates(setup: Mapping[str, Any]) -> list[str]:
    sizes = setup["microseconds"]
    return list(dict.fromkeys(name for size in sorted(sizes, key=int) for name in sizes[size]))


def _looks(names: list[str]) -> dict[str, dict[str, Any]]:
    """The same colour for a candidate in each panel, and plain's in black above all others."""
    others = [name for name in dict.fromkeys(names) if name != "plain"]
    found = {name: {"color": f"C{at % 10}"} for at, name in enumerate(others)}
    for name in others[10:]:
        found[name]["linestyle"] = "--"
    return {**found, "plain": {"color": "black", "linewidth": 2.5}}


def _panel(
    panel: Any,
    title: str,
    microseconds: Mapping[str, Mapping[str, Any]],
    looks: Mapping[str, dict[str, Any]],
) -> None:
    sizes = sorted(microseconds, key=int)
    for candidate in _candidates({"microseconds": microseconds}):
        have = [size for size in sizes if candidate in microseconds[size]]
        x = [int(size) / 1024 for size in have]
        cells = [microseconds[size][candidate] for size in have]
        middle = [cell["median"] for cell in cells]
        (line,) = panel.plot(x, middle, marker=".", label=candidate, zorder=3, **looks[candidate])
        low, high = ([cell[edge] for cell in cells] for edge in ("low", "high"))
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("message, KiB")
    panel.set_title(title)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
