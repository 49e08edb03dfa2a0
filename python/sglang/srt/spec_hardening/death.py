"""The parent's side: find out that a rank is gone or hung, say which and why, end the rest.

A server ends, exit code not 0; the caller of an `Engine` gets an `EngineDeadError` and keeps its
process (`engine`). One final line is the same for both: rank, stage, cause, where the traceback is.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from . import ending, faults, record, remains
from .construction import STACKS_SIGNAL
from .verdict import NO_PROGRESS, Verdict, of_ranks
from .verdict import EngineDeadError as EngineDeadError  # callers of an Engine import it here

logger = logging.getLogger(__name__)

CUSTOM_HANDLER_GRACE_S = 10.0

_board: record.Board | None = None
# What `end_server` found with the ended process in hand, for the handler that it calls.
_known: str | None = None


def launch(embedded: bool = False, sigquit_handler: Callable[..., Any] | None = None) -> None:
    """Open the record of a launch in the launching process.

    `Engine` calls first, with `embedded` and the caller's own signal handler; the launch code it
    shares with the servers calls again and finds it open. ValueError for a fault that was asked
    for outside of tests.
    """
    listens = sigquit_handler is not None and (
        threading.current_thread() is threading.main_thread()
    )
    global _board
    faults.from_environment()
    if _board is not None and _board.header.embedded and not _board.header.launched:
        _board.header.launched = 1
        return
    try:
        _board = record.Board.create(embedded, signal_owner=not embedded or listens)
    except (AttributeError, OSError) as error:
        logger.warning("ranks leave no record on this host: %s", error)
        _board = None
        return
    _board.header.launched = not embedded


def board() -> record.Board | None:
    """The record of this process's latest launch, or of the one it was started by."""
    global _board
    if _board is None:
        _board = record.from_environment()
    return _board


def verdict(processes: Sequence[BaseProcess] = ()) -> Verdict | None:
    """What is wrong with this process's latest launch, None if nothing is."""
    here = board()
    return None if here is None else of_ranks(list(here.ranks()), processes)


def check_launch(processes: Sequence[BaseProcess]) -> None:
    """Raise if a rank failed, died or hangs while the others are waited for; end them all."""
    found = verdict(processes)
    if found is not None:
        raise give_up(processes, found)


def give_up(processes: Sequence[BaseProcess], found: Verdict | None = None) -> EngineDeadError:
    """End all processes of a launch that failed; the error to raise."""
    deadline = time.monotonic() + ending.EXIT_S
    while found is None and time.monotonic() < deadline:
        found = verdict(processes)  # a pipe closes a moment before its process is gone
        time.sleep(0.02)
    if found is None:
        codes = [process.exitcode for process in processes]
        error = EngineDeadError(f"a rank ended unasked (exit codes: {codes})")
    else:
        if NO_PROGRESS in found.cause:
            _dump_stacks()
        error = found.error()
    end_processes(processes)
    return error


def wait_for_ranks(processes: Sequence[BaseProcess]) -> None:
    """Block until all have left on request; end them all and raise as soon as one has not. For a
    node without a front end, which has nobody else to look."""
    waiting = list(processes)
    while waiting:
        wait([process.sentinel for process in waiting])
        for process in [one for one in waiting if not one.is_alive()]:
            process.join()
            waiting.remove(process)
            if not ended_in_order(process):
                raise give_up(processes)


def ended_in_order(process: BaseProcess) -> bool:
    """Whether a process that ended was asked to (exit code 0 alone does not show it).

    One that is no rank, a data-parallel controller without a front end, also leaves with 0 when its
    ranks are gone.
    """
    if process.exitcode != 0:
        return False
    here = board()
    rank = None if here is None else here.of_pid(process.pid)
    return verdict() is None if rank is None else rank.status == record.Status.CLOSED


def end_processes(processes: Sequence[BaseProcess]) -> None:
    """SIGKILL these children and everything they started, and wait until they are gone."""
    doomed: list[psutil.Process] = []
    for process in processes:
        try:
            root = psutil.Process(process.pid)
            children = root.children(recursive=True)
            doomed += [one for one in children if not remains.is_resource_tracker(one)] + [root]
        except psutil.NoSuchProcess:
            continue
    for one in doomed:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    for process in processes:
        process.join(timeout=30)


def build_front_end(processes: Sequence[BaseProcess], build: Callable[..., Any], *args: Any) -> Any:
    """`build(*args)`; if it raises, what was started to be behind it ends too."""
    try:
        return build(*args)
    except BaseException:
        end_processes(processes)
        raise


def final_line(processes: Sequence[BaseProcess] = ()) -> str:
    """The last thing a server says."""
    found = verdict(processes)
    if found:
        return found.line
    for process in processes:
        if process.exitcode:
            how = ending.words(process.exitcode)
            return f"{process.name} (pid {process.pid}) failed: {how}; no rank says why, see above"
    return "a child process ended (no rank says why; see above)"


def leave(why: str | None = None) -> None:
    """End a server from its SIGQUIT handler: everything it started, then itself, with exit code 1.
    Does not return. The final line, `why` if the cause is no rank's, comes last."""
    everything = psutil.Process().children(recursive=True)
    children = [child for child in everything if not remains.is_resource_tracker(child)]
    line = why or _known or final_line()
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children, timeout=30)
    logger.error(line)
    os._exit(1)


def is_embedded() -> bool:
    """Whether this process's latest launch is an Engine's."""
    return _board is not None and bool(_board.header.embedded)


def somebody_raises() -> bool:
    """SIGQUIT came: True if nothing is to be killed, because the launch will raise (the ranks are
    still waited for) or the Engine's watchdog does."""
    return is_embedded() or not _came_up()


def _came_up() -> bool:
    ranks = [] if _board is None else list(_board.ranks())
    return all(rank.was_ready for rank in ranks) or verdict() is None


def end_server(processes: Sequence[BaseProcess]) -> None:
    """A child of a server died. Tell the SIGQUIT handler, whoever's it is, and if that returns
    end the server: without its ranks it can only time out. Runs in the watchdog's thread."""
    global _known
    _known = line = final_line(processes)
    os.kill(os.getpid(), signal.SIGQUIT)
    time.sleep(CUSTOM_HANDLER_GRACE_S)
    logger.error("the SIGQUIT handler returned; ending the server")
    end_processes(processes)
    logger.error(line)
    os._exit(1)


def _dump_stacks() -> None:
    """Ask the ranks that are still there for the stacks of their threads, and let them write."""
    here = board()
    ranks = [] if here is None else list(here.ranks())
    building = [rank for rank in ranks if rank.status == record.Status.BUILDING]
    for rank in building:
        try:
            os.kill(rank.pid, STACKS_SIGNAL)
        except ProcessLookupError:
            continue
    if building:
        time.sleep(0.5)
