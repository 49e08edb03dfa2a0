"""A program that says its last line and does not end is left, and what it does then is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kit import fault_run
from sglang_spec import process

PROGRAM = """
import faulthandler, signal, subprocess
faulthandler.register(signal.SIGUSR2, all_threads=True)
child = subprocess.Popen(["sleep", "600"])

def waits_for_a_child():
    child.wait()

print('{"event": "alive"}', flush=True)
waits_for_a_child()
"""


def test_where_a_program_stands_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_run, "GRACE", 1.0)
    log = tmp_path / "program.log"
    child = process.spawn([sys.executable, "-c", PROGRAM], log, dict(os.environ))
    try:
        assert fault_run._end(child, log, limit=300) is None
    finally:
        process.stop(child)
    said = (tmp_path / "program.standing.log").read_text()
    assert "sleep 600" in said and " in " in said
    assert "in waits_for_a_child" in log.read_text()
