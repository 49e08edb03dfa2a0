"""The test side of the zygote: a `Popen` look-alike for programs forked from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_spec import host
from sglang_spec.process import die_with_parent

TEST = Path(__file__).resolve().parents[1]


class Forked:
    """One program that runs as a fork of the zygote; has the part of Popen that `stop` needs."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote = zygote
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._zygote.ask(op="poll", pid=self.pid)["code"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)


class Zygote:
    """The preloaded process. `start` forks a program from it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kit.zygote"],
            cwd=TEST,
            env=host.engine_environment(threads=1),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            preexec_fn=die_with_parent,
        )
        self._read()

    def start(
        self,
        run: str,
        argv: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        netns: str = "",
    ) -> Forked:
        """Fork `run` (a module or a FILE.py) with exactly this environment, output to `log`, in
        the network namespace at the path `netns` if one is given."""
        log.parent.mkdir(parents=True, exist_ok=True)
        request = {"op": "start", "run": run, "argv": list(argv), "env": dict(env), "netns": netns}
        return Forked(self, self.ask(**request, log=str(log.resolve()))["pid"])

    def ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the zygote ended with {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(300)
