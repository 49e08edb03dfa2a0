"""The death of a rank as an exception: what the caller of an `Engine` gets, and only that.

Upstream signals the process that made the Engine, which ends a program that is not ours, or, where
no handler could be set (an Engine made outside the main thread), leaves every call waiting for
ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from sglang.srt.runtime_context import get_exec

from . import death, record

logger = logging.getLogger(__name__)


class GuardedLoop:
    """The Engine's event loop; `run_until_complete` raises when the engine is dead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, manager: Any) -> None:
        self._loop = loop
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def run_until_complete(self, future: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(self._race(future))

    async def _race(self, future: Awaitable[Any]) -> Any:
        work = asyncio.ensure_future(future)
        dead = asyncio.ensure_future(self._manager.engine_dead_event.wait())
        try:
            await asyncio.wait({work, dead}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise self._manager.engine_dead
        finally:
            dead.cancel()
            work.cancel()


def adopt(engine: Any) -> None:
    """Last line of `Engine.__init__`: from here on a dead rank is an exception of this Engine."""
    manager = engine.tokenizer_manager
    if manager is None:
        return
    manager.engine_dead = None
    manager.engine_dead_event = asyncio.Event()
    engine.loop = GuardedLoop(engine.loop, manager)
    watchdog = manager._subprocess_watchdog
    if watchdog is not None:
        watchdog.engine_manager = manager


def raise_if_dead(manager: Any) -> None:
    """For the paths of a request: EngineDeadError if the ranks have ended."""
    error = getattr(manager, "engine_dead", None)
    if error is not None:
        raise error


def fail(manager: Any, processes: Sequence[BaseProcess] = ()) -> bool:
    """If `manager` (a TokenizerManager) serves an Engine: end the engine's processes, and let
    every call that waits, and every later one, raise EngineDeadError. False for a server's."""
    if manager is None or not hasattr(manager, "engine_dead"):
        return False
    if manager.engine_dead is not None:
        return True
    watchdog = manager._subprocess_watchdog
    children = list(processes) or (watchdog._processes if watchdog is not None else [])
    found = death.verdict(children)
    error = found.error() if found else death.EngineDeadError(death.final_line(children))
    logger.error("%s", error)
    manager.engine_dead = error
    death.end_processes(children)
    loop = manager.event_loop
    if loop is not None and not loop.is_closed():
        loop.call_soon_threadsafe(_wake, manager)
    else:
        manager.engine_dead_event.set()
    return True


def on_dead_child(watchdog: Any) -> bool:
    """A child of this process ended unasked; the watchdog's thread calls. False: look again.

    A server ends here. An Engine whose constructor has not come to `adopt` yet is left for the
    next look.
    """
    manager = watchdog.engine_manager
    if manager is None and death.is_embedded():
        return False
    for process, name in zip(watchdog._processes, watchdog._names, strict=True):
        process.name = name  # for the final line, where it is no rank that ended
    if not fail(manager, watchdog._processes):
        death.end_server(watchdog._processes)
    return True


def on_lost_rank(watchdog: Any) -> bool:
    """Look for a rank that is no child of this process, one of a data-parallel controller's, which
    does not look itself: True if one was killed while it served and the launch ends. The watchdog's
    thread calls, once its own children are found alive.

    Not with an elastic backend, which goes on without a rank.
    """
    board = vars(watchdog).setdefault("board", death.board())  # of its launch, not of a later one
    children = {process.pid for process in watchdog._processes}
    lost = [
        rank
        for rank in (() if board is None else board.ranks())
        if rank.status == record.Status.READY
        and rank.pid not in children
        and not record.alive(rank.pid)
    ]
    if not lost or get_exec().moe.elastic_ep_backend is not None:
        return False
    logger.error("%s (pid %d) ended unasked", lost[0].name, lost[0].pid)
    return on_dead_child(watchdog)


def _wake(manager: Any) -> None:
    manager.engine_dead_event.set()
    for state in manager.rid_to_state.values():
        state.event.set()  # the request sees `raise_if_dead` before it looks for output
