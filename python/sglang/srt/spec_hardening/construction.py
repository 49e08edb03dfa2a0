"""The rank's side of its record: enter a stage, fail with a name, end with a code that says so.

Called from `run_scheduler_process`, `Scheduler` and the EAGLE workers, one line a stage. Outside
of a launched rank (a unit test, a Ray actor) every call does nothing but check for a fault.
"""

from __future__ import annotations

import faulthandler
import functools
import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import psutil

from . import faults, record

logger = logging.getLogger(__name__)

_board: record.Board | None = None
_rank: record.Rank | None = None
_told = False

# A hung rank is asked for its stacks by this signal before it is killed.
STACKS_SIGNAL = signal.SIGUSR2


def enter(stage: str) -> None:
    """This rank leaves the stage it is in and begins `stage`."""
    if _rank is not None:
        _rank.enter(stage)
    faults.hit(stage)


def here() -> record.Rank | None:
    """This process's own page, None where nobody reads one."""
    return _rank


def recorded(run: Callable[..., None]) -> Callable[..., None]:
    """Decorate the entry function of a rank's process.

    Opens the record before anything can throw, and turns every end by exception, SystemExit
    included, into a recorded failure, a signal to the parent where that wants one, and exit code
    1 (upstream: the exception is swallowed and the exit code is 0).
    """
    signature = inspect.signature(run)

    @functools.wraps(run)
    def recorded_run(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        parent = psutil.Process().parent()
        try:
            begin(given["tp_rank"], given.get("pp_rank") or 0, given.get("dp_rank"))
            run(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            tell_parent(parent)
            raise SystemExit(1) from error
        if _rank is not None:
            _rank.status = record.Status.CLOSED

    return recorded_run


def begin(tp_rank: int, pp_rank: int = 0, dp_rank: int | None = None) -> None:
    """Claim a page of the launch's record for this process and arm its fault, if any."""
    global _board, _rank, _told
    _told = False
    _board = record.from_environment()
    if _board is not None:
        _rank = _board.claim(_label(tp_rank, pp_rank, dp_rank))
        faulthandler.register(STACKS_SIGNAL, all_threads=True)
    faults.arm(tp_rank)
    enter("arguments")


def ready() -> None:
    """Construction and self-test are over; the next message of this rank says so."""
    if _rank is not None:
        _rank.status = record.Status.READY
        _rank.was_ready = 1
        faulthandler.unregister(STACKS_SIGNAL)
    enter("serving")
    faults.mark_ready()


def tell_parent(parent: psutil.Process | None) -> None:
    """Record the exception being handled, then SIGQUIT the parent as upstream does.

    Not if the parent is an Engine's caller: it waits for its children and raises; a signal it has
    no handler for would kill a process that is not ours.
    """
    global _told
    if _told:
        return
    _told = True
    error = sys.exc_info()[1]
    if error is not None:
        text = "".join(traceback.format_exception(error))
        if _rank is not None:
            _rank.fail(f"{type(error).__name__}: {error}", text)
        if not isinstance(error, Exception):
            logger.error("Scheduler was left by %s", text)
    signal_parent(parent)


def signal_parent(parent: psutil.Process | None, why: str | None = None) -> None:
    """SIGQUIT to the parent if it listens to it; else end this process, which the parent sees.

    `why` is given by callers that are not about to exit by themselves (the watchdog of a hang).
    """
    board = _board or record.from_environment()
    if board is not None and parent is not None and parent.pid == board.header.owner:
        if why is not None and _rank is not None:
            _rank.fail(why, "")
        if not board.header.signal_owner:
            if why is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            return
    if parent is not None:
        parent.send_signal(signal.SIGQUIT)


def _label(tp_rank: int, pp_rank: int, dp_rank: int | None) -> str:
    parts = [] if dp_rank is None else [f"DP{dp_rank}"]
    parts += [f"PP{pp_rank}"] if pp_rank else []
    return "rank " + " ".join([*parts, f"TP{tp_rank}"])
