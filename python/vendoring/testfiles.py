"""Runs test files as programs, one after another, in forks of one process (see `preloaded.py`)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from . import preloaded
from .errors import VendoringError


class TestFiles:
    """A process that runs files with interpreter `python`, each at most `timeout_s` seconds. It has
    the modules `preload` in it already.
    """

    __test__ = False  # for pytest, which takes a class of this name for tests

    def __init__(self, python: str, log: Path, timeout_s: float, preload: list[str]) -> None:
        self._log = log
        self._timeout_s = timeout_s
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, preloaded.__file__, *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> TestFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, file: str, folder: Path, places: tuple[Path, ...]) -> tuple[int | None, str]:
        """Exit status, None if it was not done in time, and all that was printed.

        `file` is relative to `folder`, in which it runs; it imports from `places` first.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"file": file, "folder": str(folder), "log": str(self._log)}
        print(
            json.dumps({**request, "places": [str(place) for place in places]}),
            file=self._process.stdin,
            flush=True,
        )
        group = int(self._answer("pid"))
        status: int | None = None
        try:
            if select.select([self._process.stdout], [], [], self._timeout_s)[0]:
                status = int(self._answer("status"))
        finally:
            if status is None:  # too slow, or Ctrl-C: nothing of it stays behind
                os.killpg(group, signal.SIGKILL)
        if status is None:
            self._answer("status")
        return status, self._log.read_text(encoding="utf-8", errors="replace")

    def _answer(self, key: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise VendoringError(
                "the interpreter for the tests does not run", value=str(self._process.args)
            )
        return str(json.loads(line)[key])
