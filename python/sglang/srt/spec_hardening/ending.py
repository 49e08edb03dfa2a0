"""How a process ended that says nothing itself: its exit code, and what that means."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

# From the end of a process's main thread, or of its core dump, to its exit code. Only an overloaded
# host, or a driver that frees much, takes more than a moment of it.
EXIT_S = 20.0


def exit_code(pid: int, processes: Sequence[BaseProcess]) -> int | None:
    """Of a process that is gone, a moment later than its main thread; None if it is not our child
    (a rank of a data-parallel controller) or somebody took the code. Below zero: a signal's number.
    Called by `death`, with the launch's own `processes`.
    """
    known = next((process for process in processes if process.pid == pid), None)
    if known is not None:
        known.join(timeout=EXIT_S)
        return known.exitcode
    deadline = time.monotonic() + EXIT_S
    while time.monotonic() < deadline:
        try:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        time.sleep(0.02)
    return None


def words(code: int | None) -> str:
    """The cause that the final line gives for an exit code."""
    if code is None:
        return "its process ended without a word"
    if code >= 0:
        return f"its process ended with exit code {code} and without a word"
    hint = " (often the kernel's out-of-memory killer)" if code == -signal.SIGKILL else ""
    return f"its process was ended by {signal.Signals(-code).name}{hint}"
