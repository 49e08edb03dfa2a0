"""The end of a rank's construction: nothing missing, then it is marked ready.

Called by: `run_scheduler_process` (patch `construction-stages`), between the scheduler's
construction and its ready message; `start.prove` takes that place where a rank is to decode first.
"""

from __future__ import annotations

from typing import Any

from . import construction, cycle, invariants


def finish(scheduler: Any) -> None:
    """Raise if this rank is not whole, else mark it ready."""
    check(scheduler)
    mark_ready(decoded=False)


def check(scheduler: Any) -> None:
    """Raise if an attribute of the speculative worker is still None."""
    construction.enter("invariants")
    if scheduler.draft_worker is not None:
        invariants.check(scheduler.draft_worker)


def mark_ready(decoded: bool) -> None:
    """The next message of this rank says that it is ready; it has, or has not, just decoded."""
    construction.ready()
    cycle.start(decoded=decoded)
