"""Find every process of one family by a mark in its environment, whoever its parent is by now."""

from __future__ import annotations

import time

import psutil

VARIABLE = "SGLANG_SPEC_TEST_MARK"


def processes(mark: str) -> list[psutil.Process]:
    """Live processes that carry `mark`; children inherit it, also when their parent is gone."""
    found = []
    for process in psutil.process_iter():
        try:
            zombie = process.status() == psutil.STATUS_ZOMBIE
            if not zombie and process.environ().get(VARIABLE) == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def left_after(mark: str, seconds: float) -> list[str]:
    """Command lines of what still lives after at most `seconds`; empty is what one wants."""
    deadline = time.monotonic() + seconds
    while (alive := processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [_shown(process) for process in alive]


def _shown(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"{process.pid} (gone meanwhile)"
