"""The figures of training runs as a picture: loss, right drafts and accept length. matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import canvas


def draw(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Write a PNG with one line a run.

    Args:
        runs: lines of `checkpoint.lines`, by the name of each run.

    Raises:
        PictureError: there is no matplotlib.
    """
    figure = canvas.figure(figsize=(11, 3.4), dpi=110)
    loss, right, length = figure.subplots(1, 3)
    for name, lines in runs.items():
        fitted = [line for line in lines if "loss" in line]
        counted = [line for line in lines if "accept_length" in line]
        tokens = [line["tokens"] / 1e6 for line in fitted]
        loss.plot(tokens, [line["loss"] for line in fitted], label=name, linewidth=1)
        for step in range(len(fitted[0]["right"]) if fitted else 0):
            right.plot(
                tokens,
                [line["right"][step] for line in fitted],
                color=f"C{step}",
                linewidth=1,
                label=f"step {step + 1}" if name == next(iter(runs)) else None,
            )
        seconds = [line["seconds"] / 60 for line in counted]
        length.plot(seconds, [line["accept_length"] for line in counted], marker=".", label=name)
    for axes, title, below in (
        (loss, "loss", "million tokens learned"),
        (right, "best token right, in training", "million tokens learned"),
        (length, "accept length, held out, 3 steps", "minutes"),
    ):
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(below, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
