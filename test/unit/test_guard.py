"""The guard kills a tree whose head does not: SIGKILL to the parent, orphans, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from kit import marked
from sglang_spec import process

# A parent that starts a child which ignores SIGTERM and starts another, in a session of its own.
TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] != "0":
    subprocess.Popen([sys.executable, "-c", os.environ["TREE"], str(int(sys.argv[1]) - 1)],
                     start_new_session=True)
time.sleep(600)
"""
HOLDER = """
import os, sys, time
from pathlib import Path
from sglang_spec import process
process.spawn([sys.executable, "-c", os.environ["TREE"], "2"], Path(sys.argv[1]), dict(os.environ))
time.sleep(600)
"""


def test_sigkill_to_the_holder_ends_the_whole_tree(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    env = {**os.environ, marked.VARIABLE: mark, "TREE": TREE}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "log")], env=env)
    deadline = time.monotonic() + 120
    while len(marked.processes(mark)) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(marked.processes(mark)) == 5  # holder, guard, three of the tree
    holder.kill()
    holder.wait()
    assert marked.left_after(mark, 120) == []


@pytest.mark.parametrize(
    ("program", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_it_ends_as_the_command_ends(program: str, code: int, tmp_path: Path) -> None:
    child = process.spawn([sys.executable, "-c", program], tmp_path / "log", dict(os.environ))
    assert child.wait(120) == code


def test_stop_ends_a_tree_that_ignores_sigterm(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    env = {**os.environ, marked.VARIABLE: mark, "TREE": TREE}
    child = process.spawn([sys.executable, "-c", TREE, "2"], tmp_path / "log", env)
    deadline = time.monotonic() + 120
    while len(marked.processes(mark)) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.stop(child, grace=0.5)
    assert marked.left_after(mark, 120) == []
