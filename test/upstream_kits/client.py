"""Runs kits, as they are, against a server that is up: `python -m upstream_kits.client JOB.json
RESULTS.jsonl`.

A process of its own, so that kits and helpers are those of the tree on PYTHONPATH: the patched one
or the plain one. The class that a kit is mixed into is upstream's fixture without its launch.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
import traceback
import unittest
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import openai
import psutil
import requests
from sglang.test.server_fixtures.spec_eagle_fixture import SpecEagleServerBase


class OutOfTime(BaseException):
    """Past every `except Exception` of a kit."""


class Running:
    """The server's process, for kits that look whether it is alive."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        return None if psutil.pid_exists(self.pid) else 1


class OurServer(SpecEagleServerBase):
    """Upstream's helpers for a server that somebody else started."""

    @classmethod
    def setUpClass(cls) -> None:
        cls._tokenizer = None
        requests.post(cls.base_url + "/flush_cache", timeout=60)

    @classmethod
    def tearDownClass(cls) -> None:
        pass


class Lines(unittest.TestResult):
    """Writes one JSON line a test as it ends."""

    def __init__(self, file: Path, kit: str) -> None:
        super().__init__()
        self._file, self._kit = file, kit
        self._started = time.monotonic()
        self._said: list[str] = []
        self._late = False

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._started = time.monotonic()
        self._said, self._late = [], False

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._write(test.id().rpartition(".")[2], self._said)

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._failed(test, err)

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._failed(test, err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed(test, err)

    def _failed(self, test: Any, err: Any) -> None:
        first = err[1]
        while first.__context__ is not None and not isinstance(
            first, OutOfTime
        ):  # upstream's retries hide what failed
            first = first.__context__
        lines = "".join(traceback.format_exception_only(type(first), first)).strip()
        print("".join(traceback.format_exception(*err))[-3000:], file=sys.stderr)
        self._late = self._late or issubclass(err[0], OutOfTime)
        if isinstance(test, unittest.TestCase):
            self._said.append(lines)
        else:  # the launch of a class
            self._write(str(test).partition(" ")[0], [lines])

    def _write(self, test: str, said: list[str]) -> None:
        entry = {
            "kit": self._kit,
            "test": test,
            "outcome": "cut off" if self._late else "failed" if said else "passed",
            "seconds": round(time.monotonic() - self._started, 1),
            "message": " ".join(" | ".join(said).split())[:400],
        }
        with self._file.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def with_limit(seconds: int, url: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """The test method with an end: its requests are aborted, or its threads would be waited for."""

    def late(number: int, frame: FrameType | None) -> None:
        signal.alarm(seconds)  # again, should it wait somewhere else
        requests.post(url + "/abort_request", json={"abort_all": True}, timeout=30)
        raise OutOfTime(f"not done after {seconds} s")

    def limited(self: Any) -> Any:
        signal.signal(signal.SIGALRM, late)
        signal.alarm(seconds)
        try:
            return run(self)
        finally:
            signal.alarm(0)

    return limited


def build(entry: dict[str, Any], job: dict[str, Any]) -> type[unittest.TestCase]:
    kit = getattr(importlib.import_module(f"sglang.test.kits.{entry['module']}"), entry["name"])
    base = SpecEagleServerBase if entry["launches"] else OurServer
    given = {**job["fixture"], **entry["attributes"]}
    if not entry["launches"]:
        given |= {
            "base_url": job["url"],
            "process": Running(job["pid"]),
            "client": openai.Client(api_key="none", base_url=job["url"] + "/v1"),
        }
    made: type[unittest.TestCase] = type(entry["name"], (kit, base), given)
    wanted = job.get("tests", [])
    for name in unittest.defaultTestLoader.getTestCaseNames(made):
        if name in entry["left_out"] or (wanted and not any(part in name for part in wanted)):
            setattr(made, name, None)  # hides the kit's own from the loader
    for name in unittest.defaultTestLoader.getTestCaseNames(made):
        setattr(made, name, with_limit(job["limit"], job["url"], getattr(made, name)))
    return made


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    results = Path(sys.argv[2])
    for entry in job["kits"]:
        try:
            case = build(entry, job)
        except ImportError as error:  # upstream's tests need more packages than its server
            line = {"kit": entry["key"], "test": "", "outcome": "not run", "seconds": 0}
            with results.open("a") as file:
                file.write(json.dumps({**line, "message": f"{error} on this host"}) + "\n")
            continue
        for _ in range(job.get("repeat", 1)):
            suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
            suite.run(Lines(results, entry["key"]))


if __name__ == "__main__":
    main()
