"""A pytest plugin that writes each test's outcome as it goes, to the file `$GPU_REPORT`.

JUnit XML appears at the end only, and takes a test that was cut off for one that passed. One JSON
object a line; a test that has `started` and nothing after it was cut off. Runs on the GPU machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest


def _write(
    test: str,
    outcome: str,
    seconds: float = 0.0,
    message: str = "",
    properties: Sequence[tuple[str, object]] = (),
) -> None:
    entry: dict[str, Any] = {"test": test, "outcome": outcome}
    entry |= {"seconds": round(seconds, 3), "message": " ".join(message.split())[:900]}
    if properties:
        entry["properties"] = {name: str(value) for name, value in properties}
    with open(os.environ["GPU_REPORT"], "a") as file:
        file.write(json.dumps(entry) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(nodeid, "started")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        message = getattr(crash, "message", "") or str(said or "")
        _write(report.nodeid, report.outcome, report.duration, message, report.user_properties)
