"""Which shared memory a run left behind, on a host where other servers come, go and are killed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

SHARED = Path("/dev/shm")
PREFIXES = ("sglang_loads_", "sgl_shm_")  # of SGLang's segments
LOOK_EVERY = 2.0


def segments() -> set[str]:
    """Names of SGLang's segments that are there now."""
    return {name for name in os.listdir(SHARED) if name.startswith(PREFIXES)}


class Litter:
    """Tells segments of one run from those of its neighbours, from when it is made to `left`.

    A segment is a neighbour's if it was there before, or if a process of another session was seen
    to map it: a neighbour that is killed meanwhile leaves its own.
    """

    def __init__(self) -> None:
        self._foreign = segments()
        self._session = 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look_on, daemon=True)

    def of(self, session: int) -> None:
        """The run's processes are those of this session, which has just begun."""
        self._session = session
        self._watch.start()

    def left(self, grace: float) -> tuple[str, ...]:
        """Paths of what the run has left; `grace` seconds are given, because the resource tracker
        unlinks a moment after the last process."""
        deadline = time.monotonic() + grace
        while new := segments() - self._foreign:
            self._look()
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return tuple(f"{SHARED}/{name}" for name in sorted(new - self._foreign))

    def close(self) -> None:
        """No longer watch the neighbours."""
        self._over.set()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self._look()

    def _look(self) -> None:
        self._foreign |= _mapped(lambda pid: _session_of(pid) not in (self._session, None))


def _mapped(wanted: Callable[[int], bool]) -> set[str]:
    """Names of segments that a process which is `wanted` maps."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        if not wanted(int(entry.name)):
            continue
        try:
            text = (entry / "maps").read_text()
        except OSError:
            continue
        mark = f"{SHARED}/"
        found |= {line.rpartition(mark)[2] for line in text.splitlines() if mark in line}
    return found


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
