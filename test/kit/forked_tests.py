"""Runs unittest files on one tree of SGLang after another, each in a fork of its own.

The packages that SGLang imports are loaded once, which is most of the time that its import takes;
SGLang itself is imported in the fork, from the tree that the request names.

Protocol, one JSON object a line on stdin and stdout:
    {"tree": FOLDER, "file": PATH, "log": PATH} ->
        {"run": N, "skipped": N, "failed": [TEST, ...], "broken": TEXT}
`broken` is why the file could not be run as a test at all. End of stdin ends the runner.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import traceback
import unittest
from pathlib import Path
from typing import Any, NamedTuple

_PRELOAD = (
    "torch",
    "torch._dynamo",
    "transformers.modeling_utils",
    "compressed_tensors",
    "openai",
    "aiohttp",
    "fastapi",
    "pandas",
    "scipy.stats",
    "xgrammar",
)


class Outcome(NamedTuple):
    """What one file's tests did; `log` is for the person who reads a failure."""

    run: int
    skipped: int
    failed: tuple[str, ...]
    broken: str
    log: Path

    @property
    def passed(self) -> bool:
        return self.run > self.skipped and not self.failed and not self.broken


class ForkedTests:
    """The runner as its user sees it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._runner = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, tree: Path, file: Path, log: Path) -> Outcome:
        """Runs the tests of `file` with the `sglang` in `tree`."""
        assert self._runner.stdin is not None and self._runner.stdout is not None
        request = {"tree": str(tree), "file": str(file), "log": str(log)}
        print(json.dumps(request), file=self._runner.stdin, flush=True)
        answer = json.loads(self._runner.stdout.readline())
        failed = tuple(answer["failed"])
        return Outcome(answer["run"], answer["skipped"], failed, answer["broken"], log)

    def close(self) -> None:
        assert self._runner.stdin is not None
        self._runner.stdin.close()
        self._runner.wait(30)


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the imports print must not end up between the answers
    for name in _PRELOAD:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as answer:
                json.dump(_run(request), answer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as source:
            text = source.read()
        os.waitpid(child, 0)
        broken = {"run": 0, "skipped": 0, "failed": [], "broken": "the process was killed"}
        print(text or json.dumps(broken), file=answers)


def _run(request: dict[str, str]) -> dict[str, Any]:
    """In the fork: imports the file and runs what it holds."""
    log = open(request["log"], "w", buffering=1)  # noqa: SIM115 - open until the process ends
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    sys.path.insert(0, request["tree"])
    name = Path(request["file"]).stem
    try:
        spec = importlib.util.spec_from_file_location(name, request["file"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        origin = sys.modules["sglang"].__file__ or ""
        assert origin.startswith(request["tree"] + os.sep), f"sglang came from {origin}"
    except Exception as fault:
        traceback.print_exc(file=log)
        return {"run": 0, "skipped": 0, "failed": [], "broken": repr(fault)}
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=log, verbosity=2).run(suite)
    failed = [test.id() for test, _ in (*result.failures, *result.errors)]
    return {
        "run": result.testsRun,
        "skipped": len(result.skipped),
        "failed": failed,
        "broken": "",
    }


if __name__ == "__main__":
    serve()
