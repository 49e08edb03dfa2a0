"""A worker whose parent is gone before it asks to die with it."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import psutil
import pytest
from sglang.srt.utils.common import kill_itself_when_parent_died


def worker(orphaned: bool, survived: Path) -> None:
    parent = os.getppid()
    while orphaned and os.getppid() == parent:
        time.sleep(0.01)
    kill_itself_when_parent_died()
    survived.touch()


def parent(orphaned: bool, survived: Path, pid: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=worker, args=(orphaned, survived))
    child.start()
    pid.write_text(str(child.pid))
    if not orphaned:
        child.join()
    os._exit(0)


@pytest.mark.parametrize("orphaned", [True, False])
def test_a_worker_that_lost_its_parent_ends(tmp_path: Path, orphaned: bool) -> None:
    survived, pid = tmp_path / "survived", tmp_path / "pid"
    starter = multiprocessing.get_context("fork").Process(
        target=parent, args=(orphaned, survived, pid)
    )
    starter.start()
    starter.join(120)
    deadline = time.monotonic() + 120
    while psutil.pid_exists(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert survived.exists() is not orphaned
