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
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from . import distant, ending, faults, record, remains, stages
from .construction import STACKS_SIGNAL

logger = logging.getLogger(__name__)

# A rank whose peer went away fails too, a moment later; it is not the one to name.
_CONSEQUENCES = (
    "Connection closed by peer",
    "other ranks that didn't finish",
    "Connection reset by peer",
    "NCCL",
    "Gloo",
    "gloo",
)
CUSTOM_HANDLER_GRACE_S = 10.0
NO_PROGRESS = "no progress"  # how the cause of a hang begins, also the scheduler's own watchdog's

_board: record.Board | None = None
# What `end_server` found with the ended process in hand, for the handler that it calls.
_known: str | None = None


class EngineDeadError(RuntimeError):
    """The engine's processes have ended. The text is the final line; `traceback` is the end of
    the rank's own, empty if it left none."""

    traceback: str = ""


@dataclass(frozen=True)
class Verdict:
    """Which rank brought the launch down, in which stage, by what."""

    rank: str
    pid: int
    stage: str
    cause: str
    where: str
    traceback: str = ""

    @property
    def line(self) -> str:
        return (
            f"{self.rank} (pid {self.pid}) failed in stage {self.stage}: {self.cause}; {self.where}"
        )

    def error(self) -> EngineDeadError:
        error = EngineDeadError(self.line)
        error.traceback = self.traceback
        return error


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
    """What is wrong with the launch, None if nothing is. Exit codes come from `processes`."""
    here = board()
    ranks = [] if here is None else list(here.ranks())
    failed = sorted(
        (rank for rank in ranks if rank.status == record.Status.FAILED),
        key=lambda rank: rank.failed_at,
    )
    working = (record.Status.BUILDING, record.Status.READY)
    silent = [rank for rank in ranks if rank.status in working and not record.alive(rank.pid)]
    spoken = [rank for rank in failed if not _is_consequence(rank)]
    if spoken or (failed and not silent):
        rank = (spoken or failed)[0]
        where = f"full traceback: logged by pid {rank.pid}, above"
        cause, trace = rank.cause.decode("utf-8", "replace"), rank.traceback
        if not spoken:
            cause = _elsewhere(cause) + cause
        if cause.startswith(NO_PROGRESS):
            cause += _nor_of(rank, ranks)
        return _verdict(rank, cause, where, trace.decode("utf-8", "replace"))
    if silent:
        rank = silent[0]
        cause = ending.words(ending.exit_code(rank.pid, processes))
        return _verdict(rank, cause, "no traceback: see the lines above and the kernel log")
    late = [
        rank
        for rank in ranks
        if rank.status == record.Status.BUILDING and 0 < rank.deadline < time.monotonic()
    ]
    if late:
        rank = min(late, key=lambda rank: (rank.stage, rank.entered))
        limit = stages.limit_of(rank.stage_name)
        return _verdict(
            rank,
            f"{NO_PROGRESS} for {limit:.0f} s (SGLANG_SPEC_STAGE_TIMEOUT sets the limit)"
            + _nor_of(rank, ranks),
            "the stacks of all: dumped above",
        )
    return None


def check_launch(processes: Sequence[BaseProcess]) -> None:
    """Raise if a rank failed, died or hangs while the others are waited for; end them all."""
    found = verdict(processes)
    if found is not None:
        raise give_up(processes, found)


def give_up(processes: Sequence[BaseProcess], found: Verdict | None = None) -> EngineDeadError:
    """End all processes of a launch that failed; the error to raise."""
    deadline = time.monotonic() + 2.0
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
    """Whether a process that ended was asked to (exit code 0 alone does not show it)."""
    if process.exitcode != 0:
        return False
    here = board()
    rank = None if here is None else here.of_pid(process.pid)
    return rank is None or rank.status == record.Status.CLOSED


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


def final_line(processes: Sequence[BaseProcess] = ()) -> str:
    """The last thing a server says."""
    found = verdict(processes)
    return found.line if found else "a child process ended (no rank says why; see above)"


def leave() -> None:
    """End a server from its SIGQUIT handler: everything it started, then itself, with exit code 1.
    Does not return. The final line comes last."""
    everything = psutil.Process().children(recursive=True)
    children = [child for child in everything if not remains.is_resource_tracker(child)]
    line = _known or final_line()
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


def _verdict(rank: record.Rank, cause: str, where: str, traceback: str = "") -> Verdict:
    return Verdict(rank.name, rank.pid, rank.place, cause, where, traceback)


def _nor_of(first: record.Rank, ranks: Sequence[record.Rank]) -> str:
    """One rank hangs, the others wait for it in a collective: the stacks tell which is which. The
    watchdogs of several may have said so in the same moment."""
    working = (record.Status.BUILDING, record.Status.READY)
    others = [
        one
        for one in ranks
        if one.pid != first.pid
        and (one.status in working or one.cause.startswith(NO_PROGRESS.encode()))
    ]
    names = ", ".join(f"{one.name} in {one.place}" for one in others)
    return f", nor of {names}" if names else ""


def _elsewhere(consequence: str) -> str:
    """No rank of this node failed by itself: what comes before the cause then."""
    address = distant.address_in(consequence)
    return f"lost the node at {address}, whose own log says why: " if address else ""


def _is_consequence(rank: record.Rank) -> bool:
    cause = rank.cause.decode("utf-8", "replace")
    return any(mark in cause for mark in _CONSEQUENCES)


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
