"""`python -m sglang_spec.guard COMMAND …`: run a command and leave nothing of it behind.

A server is a tree of processes. If its parent is killed with SIGKILL, the kernel can tell the first
of them (PR_SET_PDEATHSIG), but the others import for ten seconds before they would notice. This
process stays in between: orphans of the tree become its children (PR_SET_CHILD_SUBREAPER), and when
its own parent dies, or the command ends, it kills all that is left at once.

It ends as the command ended: same exit code, or same signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import FrameType

import psutil

from .process import adopt_orphans, die_with_parent

GRACE = 10.0  # seconds between SIGTERM to the command and SIGKILL to everything


def main(command: list[str]) -> int:
    parent = os.getppid()
    die_with_parent(signal.SIGTERM)
    adopt_orphans()
    if os.getppid() != parent:  # it died before the kernel was asked
        return 1
    child = subprocess.Popen(command)

    def leave(signum: int, frame: FrameType | None) -> None:
        if os.getppid() != parent:
            kill_descendants()
        else:
            child.terminate()
            timer = threading.Timer(GRACE, kill_descendants)
            timer.daemon = True
            timer.start()

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, leave)
    code = child.wait()
    kill_descendants()
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def kill_descendants() -> None:
    """SIGKILL to the whole tree under this process, orphans included, until none is left."""
    while left := psutil.Process().children(recursive=True):
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
