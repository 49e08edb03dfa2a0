"""An empty matplotlib figure that needs no screen, for every picture the commands write."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class PictureError(RuntimeError):
    """matplotlib is not installed."""


def figure(**options: Any) -> Any:
    """A `matplotlib.figure.Figure` with these options, to be saved as PNG.

    Raises:
        PictureError: there is no matplotlib.
    """
    try:
        backend: Any = import_module("matplotlib.backends.backend_agg")
        figures: Any = import_module("matplotlib.figure")
    except ImportError as error:
        raise PictureError("a picture needs matplotlib (pip install matplotlib)") from error
    made = figures.Figure(**options)
    backend.FigureCanvasAgg(made)
    return made
