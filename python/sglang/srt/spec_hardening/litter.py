"""Shared memory that ranks leave in /dev/shm when they are killed, removed by their parent.

Upstream never unlinks the file of load figures, not even after an orderly end, and the ring
buffers of a tensor-parallel group stay when its ranks are killed.
"""

from __future__ import annotations

import os
from multiprocessing import util
from pathlib import Path

from .record import Board

SHARED_MEMORY = Path("/dev/shm")

_owner = 0
_load_files: set[Path] = set()


def expect(instance: str) -> None:
    """A launch of this process with this instance id will make its file of load figures."""
    global _owner
    if _owner != os.getpid():
        _owner = os.getpid()
        _load_files.clear()
        util.Finalize(None, sweep, exitpriority=0)  # an orderly end of the process
    from sglang.srt.managers.load_snapshot import shm_path_for

    _load_files.add(Path(shm_path_for(instance)))


def sweep(board: Board | None = None) -> None:
    """Remove what the ended ranks of this process's launches left."""
    if os.getpid() != _owner:
        return
    for path in _load_files:
        path.unlink(missing_ok=True)
    for rank in () if board is None else board.ranks():
        for path in SHARED_MEMORY.glob(f"sgl_shm_mq_{rank.pid}_*"):
            path.unlink(missing_ok=True)
