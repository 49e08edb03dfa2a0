"""What each state of an adaptive server takes, for `report`. No torch.

A server captures the graphs of its first state at start, where `report.states` counts them by
phase; every further one is built after that, and its graphs and attention buffers come on top.

Called by: `speculative/eagle_worker_v2.py` (patch `kv-cost-in-server-info`), once for each state.
"""

from __future__ import annotations

from typing import Any

_GIGABYTES = "adaptive_state_gigabytes"


def note(worker: Any, steps: int, gigabytes: float) -> None:
    """Remember on the worker what the state of so many draft steps took of the device's memory."""
    taken: dict[int, float] = getattr(worker, _GIGABYTES, {})
    taken[steps] = gigabytes
    setattr(worker, _GIGABYTES, taken)


def told(worker: Any) -> dict[str, float]:
    """Draft steps -> gigabytes of each state beside the first; memory that others freed is 0."""
    taken: dict[int, float] = getattr(worker, _GIGABYTES, {})
    return {str(steps): round(max(0.0, gb), 3) for steps, gb in sorted(taken.items())}
