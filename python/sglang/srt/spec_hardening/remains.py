"""What a server must not leave behind when it is killed: orphans and names in /dev/shm.

A killed process runs no clean-up of its own. Python's resource tracker does it from outside: it
waits until every process that shares it is gone, then unlinks the shared memory they registered.
So it has to outlive them (upstream killed it with the rest of the tree), and what is created by
path has to be registered with it.

Called by: `srt/utils/common.py` and `srt/managers/load_snapshot.py` (patches
`keep-resource-tracker`, `orphan-before-deathsig`). Imports without torch.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import resource_tracker
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")


def is_resource_tracker(process: psutil.Process) -> bool:
    """True for a tracker of Python's multiprocessing, whoever started it."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def remove_when_all_ended(path: str) -> None:
    """Have the resource tracker unlink `path` once the last process of this server is gone.

    Only for files directly in /dev/shm; others are left alone.
    """
    file = Path(path)
    if file.parent == SHARED_MEMORY:
        resource_tracker.register(f"/{file.name}", "shared_memory")


def end_if_orphaned() -> None:
    """Kill this process if the one that started it is gone already.

    For the moment after PR_SET_PDEATHSIG was set: the kernel signals deaths that come after that
    call, and a spawned process imports for seconds before it gets there.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None and os.getppid() != parent.pid:
        os.kill(os.getpid(), signal.SIGKILL)
