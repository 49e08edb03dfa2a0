"""Speculation that never loses: above a batch size it is off, and off costs no more than without.

- `policy`: when it is on and when off, as a pure function of row counts (no torch).
- `auto`: the same from what a step costs (`cost`) and how many drafts are accepted (`acceptance`),
  both torch-free; `measure` finds the costs at start (`cells`, `rehearsal`, `stopwatch`), and
  while it serves `drift` corrects them by what live batches take (`sampler`, `exchange`).
- `settings`: the flags, and what a launch with them cannot serve (no torch).
- `ring`: the captured hidden states that the draft has not seen yet.
- `worker`: a step without speculation, and the draft's catching up.

`make_decider` is the one place that chooses how the decision is made.
"""

from __future__ import annotations

from typing import Any

from .acceptance import Acceptance
from .auto import AutoDecider
from .policy import Bounds, Decider, Threshold
from .rules import Rules
from .settings import AUTO, Settings, ThresholdError, bounds_of, settings_of

__all__ = [
    "AUTO",
    "Bounds",
    "Decider",
    "Settings",
    "Threshold",
    "ThresholdError",
    "make_decider",
    "settings_of",
]


def make_decider(server_args: Any, worker: Any = None) -> Decider | None:
    """What says for each batch whether it speculates; None where the launch has no threshold.

    Args:
        server_args: anything with the fields that `settings_of` reads.
        worker: the EAGLE worker of this rank, all its graphs captured; None in tests without one.
    """
    settings = settings_of(server_args)
    if settings is None:
        return None
    if settings.disable_at == AUTO:
        steps = int(server_args.speculative_num_steps)
        return AutoDecider(Acceptance(steps), Rules(dwell=settings.dwell or Rules.dwell))
    return Threshold(bounds_of(settings))
