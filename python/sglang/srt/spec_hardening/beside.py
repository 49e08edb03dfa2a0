"""A process beside the ranks that fails: the data-parallel controller, the detokenizer, its router.

It is no rank and shows nothing while it is well. When it fails it takes a page of the launch's
record for its last words, so that the launch ends by its name as it does by a rank's.

Called by: the entry functions of those processes (patch `named-end-beside-ranks`).
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import psutil

from . import construction, record

logger = logging.getLogger(__name__)


def fail(name: str, parent: psutil.Process | None) -> NoReturn:
    """End this process, whose exception is being handled, with exit code 1 and in the way in which
    a rank ends: its words in the record, a signal to a parent that listens to it.

    Upstream signals a parent that may have no handler, an Engine's caller, which it kills, and
    ends with exit code 0.
    """
    _say(name)
    construction.signal_parent(parent)
    _leave()


def thread(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate what a thread of such a process runs where the process waits for it without end:
    an exception ends the process."""

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(run)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                run(*args, **kwargs)
            except BaseException:
                logger.exception("%s hit an exception", name)
                fail(name, psutil.Process().parent())

        return guarded

    return decorate


def _say(name: str) -> None:
    error = sys.exc_info()[1]
    board = record.from_environment()
    if board is None or error is None:
        return
    ready = [bool(rank.was_ready) for rank in board.ranks()]
    page = board.claim(name)
    if ready and all(ready):
        page.enter("serving")
        page.was_ready = 1  # as the launch is over: whoever is signalled has to end it
    page.fail(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))


def _leave() -> NoReturn:
    """At once: the controller has threads that the interpreter would wait for until they end, and
    its ranks live as long as they do."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
