"""Which rank brought a launch down, in which stage, by what: read from the record alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from . import distant, ending, record, stages

# A rank whose peer went away fails too, a moment later; it is not the one to name.
_CONSEQUENCES = (
    "Connection closed by peer",
    "other ranks that didn't finish",
    "Connection reset by peer",
    "NCCL",
    "Gloo",
    "gloo",
)
NO_PROGRESS = "no progress"  # how the cause of a hang begins, also the scheduler's own watchdog's


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


def of_ranks(ranks: Sequence[record.Rank], processes: Sequence[BaseProcess]) -> Verdict | None:
    """What is wrong with the launch, None if nothing is. Exit codes come from `processes`."""
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
