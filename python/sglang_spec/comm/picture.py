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
    for panel, (name, setup) in zip(panels, setups.items(), strict=True):
        _panel(panel, f"{name} (plain: {setup['plain']})", setup["microseconds"])
    panels[0].set_ylabel("microseconds of one all-reduce")
    about = results["provenance"]
    gpus = f"{len(about['gpus'])}x {about['gpus'][0]}" if about["gpus"] else about["device"]
    figure.suptitle(f"{gpus}, {about['ranks']} ranks, in graphs, {about['date'][:10]}")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _panel(panel: Any, title: str, microseconds: Mapping[str, Mapping[str, Any]]) -> None:
    sizes = sorted(microseconds, key=int)
    for candidate in dict.fromkeys(name for size in sizes for name in microseconds[size]):
        have = [size for size in sizes if candidate in microseconds[size]]
        x = [int(size) / 1024 for size in have]
        cells = [microseconds[size][candidate] for size in have]
        middle = [cell["median"] for cell in cells]
        (line,) = panel.plot(x, middle, marker=".", label=candidate, zorder=3)
        low, high = ([cell[edge] for cell in cells] for edge in ("low", "high"))
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("message, KiB")
    panel.set_title(title)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
