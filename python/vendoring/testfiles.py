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
            bufsize=0,  # two answers that come at once must not hide one behind the other
            env=environment,
        )
        self._rest = b""

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
        assert self._process.stdin is not None
        request = {"file": file, "folder": str(folder), "log": str(self._log)}
        line = json.dumps({**request, "places": [str(place) for place in places]}) + "\n"
        self._process.stdin.write(line.encode())
        group = self._answer("pid")
        assert group is not None
        status: int | None = None
        try:
            status = self._answer("status", self._timeout_s)
        finally:
            if status is None:  # too slow, or Ctrl-C: nothing of it stays behind
                os.killpg(group, signal.SIGKILL)
        if status is None:
            self._answer("status")
        return status, self._log.read_text(encoding="utf-8", errors="replace")

    def _answer(self, key: str, timeout_s: float | None = None) -> int | None:
        """The number of the next answer, None if it did not come in time."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            if not select.select([self._process.stdout], [], [], timeout_s)[0]:
                return None
            more = self._process.stdout.read(4096)
            if not more:
                raise VendoringError(
                    "the interpreter for the tests does not run", value=str(self._process.args)
                )
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return int(json.loads(line)[key])
