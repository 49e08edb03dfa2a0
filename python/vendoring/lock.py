"""One writer at a time: a lock on a file that the kernel lets go of when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import VendoringError
from .talk import say

_POLL_S = 0.2


@contextmanager
def locked(path: Path, wait_s: float = 300.0) -> Iterator[None]:
    """Holds the lock at `path`; waits up to `wait_s` seconds for another run, then raises a named
    error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        _acquire(file.fileno(), path, wait_s)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _acquire(descriptor: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = path.read_text(encoding="utf-8").strip() or "unknown"
        if time.monotonic() >= deadline:
            raise VendoringError(
                f"another run holds the lock (process {holder})",
                file=str(path),
                remedy="wait for it to end, then run again",
            )
        if not told:
            say(f"waiting for another run (process {holder})")
            told = True
        time.sleep(_POLL_S)
