"""Killing the demo, in whatever way and at whatever point, leaves no process behind.

These start the command cold, as a person does, so each costs the imports of several processes.
"""

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

SECONDS_TO_END = 300.0  # only what is left behind is waited for so long


@pytest.mark.parametrize(
    ("signum", "servers_up"),
    [
        (signal.SIGKILL, True),
        (signal.SIGINT, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.full),  # a cold start more
    ],
)
def test_a_killed_demo_leaves_nothing(
    signum: signal.Signals, servers_up: bool, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    demo = subprocess.Popen(
        [sys.executable, "-m", "sglang_spec", "demo", "--prompts", "2"],
        cwd=tmp_path,
        env={**os.environ, marked.VARIABLE: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # Demo, two guards, two servers, and with `servers_up` some that these start in turn.
        wanted = 8 if servers_up else 3
        deadline = time.monotonic() + 900
        while len(marked.processes(mark)) < wanted and time.monotonic() < deadline:
            assert demo.poll() is None, "the demo ended by itself"
            time.sleep(0.1)
        assert len(marked.processes(mark)) >= wanted
        demo.send_signal(signum)
        assert marked.left_after(mark, SECONDS_TO_END) == []
        assert demo.wait(60) != 0
    finally:
        for process in marked.processes(mark):
            process.kill()
        demo.wait(60)
