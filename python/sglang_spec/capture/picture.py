"""The matrix of slots against layers as a picture. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import canvas
from .compare import Comparison


def draw(comparison: Comparison, path: Path) -> None:
    """Write the relative errors as a PNG: dark is near, a dot marks the nearest of each slot.

    Raises:
        PictureError: there is no matplotlib.
    """
    errors = np.array([[cell.error for cell in row] for row in comparison.matrix])
    rows, columns = errors.shape
    figure = canvas.figure(figsize=(max(4.0, 0.42 * columns + 2), 0.5 * rows + 2.4), dpi=120)
    axes = figure.add_subplot()
    image = axes.imshow(np.log10(np.maximum(errors, 1e-4)), cmap="viridis", aspect="auto")
    axes.set_yticks(range(rows), [f"A {n}: {name}" for n, name in enumerate(comparison.labels_a)])
    axes.set_xticks(range(columns), [_short(name) for name in comparison.columns], rotation=90)
    axes.scatter(errors.argmin(1), range(rows), s=18, c="white", edgecolors="black")
    bar = figure.colorbar(image, ax=axes)
    bar.set_label("relative error, log10")
    axes.set_title(f"{comparison.tokens} tokens; the dot is the nearest layer", fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _short(label: str) -> str:
    return "embedding" if label == "the embedding" else label.removeprefix("output of ")
