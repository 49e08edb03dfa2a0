"""Child processes that never outlive the one that started them (Linux)."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `signum` to this process when its parent ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def adopt_orphans() -> None:
    """Make this process the parent of grandchildren whose own parent died, so it can find them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, output to `log`; its tree dies with this process.

    What is returned is the guard around it (`guard`), which ends as the command ends.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "sglang_spec.guard", *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def tree(pid: int) -> list[psutil.Process]:
    """The process and all its descendants that are alive now."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def session_members(sid: int) -> list[psutil.Process]:
    """Every process of a session: finds children whose parent is already gone."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == sid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


class Child(Protocol):
    """What `stop` needs of a started program; `subprocess.Popen` has it."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...


def stop(child: Child, grace: float = 10.0) -> None:
    """End `child` and everything it started: SIGTERM, then SIGKILL after `grace` seconds.

    What outlives `child` gets a moment to end by itself, and Python's resource tracker all the time
    it needs: it ends once its clients are gone and has then unlinked their shared memory.
    """
    family = tree(child.pid)
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    psutil.wait_procs(family, timeout=0.5)
    for process in {*family, *session_members(child.pid)}:
        try:
            if not any("resource_tracker" in word for word in process.cmdline()):
                process.kill()
        except psutil.NoSuchProcess:
            continue
    child.wait()
    psutil.wait_procs(family, timeout=grace)


# Below what the kernel gives to outgoing connections (32768 and up unless set otherwise), which
# would take a port between choice and bind; so is SGLang's gRPC port, 10,000 above.
PORTS = range(15000, 22000)
_CHOSEN: deque[socket.socket] = deque(maxlen=64)  # the servers of older ones listen by now


def free_port() -> int:
    """A loopback TCP port that nobody listens on, and that no other process is given here for now.

    A socket in the abstract namespace, named after the port, is held meanwhile.

    Raises:
        OSError: no port of `PORTS` is free.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            claim.bind(f"\0sglang-spec-port-{port}")
        except OSError:
            claim.close()
            continue
        _CHOSEN.append(claim)
        return port
    raise OSError(errno.EADDRINUSE, f"no free port from {PORTS.start} to {PORTS.stop - 1}")


def wait_until_gone(pids: Sequence[int], timeout: float) -> list[int]:
    """The pids still alive after at most `timeout` seconds; empty is what one wants."""
    deadline = time.monotonic() + timeout
    alive = [pid for pid in pids if psutil.pid_exists(pid)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [pid for pid in alive if psutil.pid_exists(pid)]
    return alive
