"""The last stages of a rank before it is called ready: nothing missing, and it can decode.

Called by: `run_scheduler_process`, between the scheduler's construction and its ready message, so
that every front end (HTTP, gRPC, Engine) and every rank is covered.
"""

from __future__ import annotations

from typing import Any

from . import construction, invariants


def prove(scheduler: Any) -> None:
    """Raise if this rank is not whole; else mark it ready."""
    construction.enter("invariants")
    if scheduler.draft_worker is not None:
        invariants.check(scheduler.draft_worker)
    construction.ready()
