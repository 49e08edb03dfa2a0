"""Where a program stands that does not end: every process of its session and each of its threads.

For a log, since a machine with a GPU is gone when somebody asks. A program that registers `SIGNAL`
with `faulthandler` adds its own stacks; the rest is what the kernel tells, so that a hang outside
of Python, or in a child, is seen as well.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from sglang_spec import process

SIGNAL = signal.SIGUSR2


def say(session: int, log: Path) -> None:
    """Write it beside `log`, and have the programs that can add their stacks to that."""
    members = process.session_members(session)
    with log.with_suffix(".standing.log").open("w") as out:  # who writes to `log` does not append
        out.writelines(f"{line}\n" for one in members for line in _lines(one))
    for one in members:
        with suppress(psutil.Error, OSError):
            if _catches(one.pid):
                one.send_signal(SIGNAL)
    time.sleep(2)  # the stacks are written by then, or are not


def _catches(pid: int) -> bool:
    """Whether the signal would be handled; it ends who does not."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "SigCgt":
            return bool(int(value, 16) >> (SIGNAL - 1) & 1)
    return False


def _lines(one: psutil.Process) -> Iterator[str]:
    with suppress(psutil.Error, OSError):
        command = " ".join(one.cmdline())[:120]
        yield f"process {one.pid}, parent {one.ppid()}, {one.status()}: {command}"
        for task in sorted(Path(f"/proc/{one.pid}/task").iterdir()):
            yield f"  thread {task.name} {_read(task / 'comm')}: {_state(task)}, {_place(task)}"


def _state(task: Path) -> str:
    """Its state and the function of the kernel that it waits in."""
    return f"{_read(task / 'stat').rpartition(')')[2][:2].strip()} in {_read(task / 'wchan')}"


def _place(task: Path) -> str:
    """The system call it is in, and the library whose code called."""
    fields = _read(task / "syscall").split()
    if len(fields) < 3:
        return " ".join(fields) or "not shown"
    counter = int(fields[-1], 16)
    for line in _read(task / "maps").splitlines():
        low, _, high = line.split()[0].partition("-")
        if int(low, 16) <= counter < int(high, 16):
            return f"system call {fields[0]} from {line.split()[-1]}"
    return f"system call {fields[0]}"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "-"  # gone, or not for us to see
