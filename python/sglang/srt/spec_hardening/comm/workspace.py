"""Keeps a fusion workspace that captured graphs hold: nobody may free what a graph will write to.

The target captures its graphs first. A draft with wider rows asks for a larger workspace after that
and upstream frees the old one; replays of the target's graphs then write into freed memory.

Called by: `distributed/parallel_state.py`, `layers/flashinfer_comm_fusion.py` (patch
`keep-captured-workspace`).
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

_captured = False
_said: set[int] = set()


def graphs_begin() -> None:
    """A capture starts: what reduces from now on is part of a graph."""
    global _captured
    _captured = True


def must_stay(manager: Any, hidden_dim: int) -> bool:
    """Whether `manager`'s workspace may not be replaced; the caller reduces without fusion then.

    The same on every rank: captures and widths are. hidden_dim: elements of the rows that do not
    fit, for the log.
    """
    if not _captured or not manager.initialized:
        return False
    if hidden_dim not in _said:
        _said.add(hidden_dim)
        logger.warning(
            "Rows of %d elements do not fit the fusion workspace (%s) that captured graphs hold: "
            "they are reduced without fusion",
            hidden_dim,
            manager.hidden_dim,
        )
    return True
