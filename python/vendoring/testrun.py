"""Runs of test programs in processes of their own, of which nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple


class Run(NamedTuple):
    """One run of tests: passed, failed, skipped, timeout or broken, and what failed first."""

    outcome: str
    detail: str = ""


def run_group(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    output: IO[bytes] | None = None,
) -> int | None:
    """Exit status of `command`, None if it was not done after `timeout_s` seconds.

    What it prints goes to `output`, else to stderr. On a timeout, and on Ctrl-C, all that it
    started in its session is killed.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=output or sys.stderr,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    ) as child:
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.returncode is None:  # too slow, or Ctrl-C: no server may stay behind
                os.killpg(child.pid, signal.SIGKILL)
