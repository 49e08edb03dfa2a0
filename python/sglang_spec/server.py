"""One SGLang server as a context manager: start, wait until it answers, stop without a trace."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import httpx

from . import host, process


class ServerError(RuntimeError):
    """A server that ended or did not get ready; the text holds the end of its log."""


@dataclass(frozen=True)
class Speculation:
    """EAGLE3 settings of a launch; `topk` 1 means a chain of num_steps + 1 draft tokens."""

    draft: Path
    num_steps: int = 3
    topk: int = 1
    num_draft_tokens: int = 4
    algorithm: str = "EAGLE3"

    def arguments(self) -> list[str]:
        return [
            *("--speculative-algorithm", self.algorithm),
            *("--speculative-draft-model-path", str(self.draft)),
            *("--speculative-num-steps", str(self.num_steps)),
            *("--speculative-eagle-topk", str(self.topk)),
            *("--speculative-num-draft-tokens", str(self.num_draft_tokens)),
        ]


@dataclass(frozen=True)
class Launch:
    """Everything that makes two servers the same or not; `python` are the words that run it."""

    model: Path
    speculation: Speculation | None = None
    dtype: str = "bfloat16"
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    python: tuple[str, ...] = (sys.executable,)

    def command(self, port: int) -> list[str]:
        """The exact command line; a person can run it as it is."""
        return [
            *(*self.python, "-m", "sglang.launch_server"),
            *("--model-path", str(self.model), "--host", "127.0.0.1", "--port", str(port)),
            *("--dtype", self.dtype),
            *(cpu_arguments() if host.device() == "cpu" else ()),
            *(self.speculation.arguments() if self.speculation else ()),
            *self.arguments,
        ]


def cpu_arguments() -> list[str]:
    """A KV cache of fixed size; the fraction only says how full the host may be already."""
    return [
        *("--device", "cpu", "--mem-fraction-static", "0.85"),
        *("--max-total-tokens", "16384", "--max-running-requests", "16"),
        "--sleep-on-idle",  # an idle scheduler would spin and take a core from the other server
    ]


Spawn = Callable[[Sequence[str], Path, dict[str, str]], process.Child]


class Server:
    """A running server. `with Server(launch, log) as server: server.url …`"""

    def __init__(
        self, launch: Launch, log: Path, port: int | None = None, spawn: Spawn = process.spawn
    ) -> None:
        self.launch = launch
        self.log = log
        self.port = port or process.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._child = spawn(
            launch.command(self.port),
            log,
            {**host.engine_environment(launch.threads), **launch.environment},
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """The exit code once the server has ended, else None."""
        return self._child.poll()

    def wait_ready(self, timeout: float = 900.0) -> Server:
        """Block until `/health` answers 200; ServerError if it ends or `timeout` s go by first."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.returncode is not None:
                raise ServerError(f"the server ended with {self.returncode}:\n{self.log_tail()}")
            try:
                if httpx.get(f"{self.url}/health", timeout=20).status_code == 200:
                    return self
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.2)
        raise ServerError(f"not ready after {timeout:.0f} s:\n{self.log_tail()}")

    def log_tail(self, lines: int = 25) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"(end of {self.log})", *(line[:400] for line in text[-lines:])])

    def stop(self) -> None:
        process.stop(self._child)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def stop_all(servers: Iterable[Server]) -> None:
    """Stop them at the same time: each may take seconds to end. Those that are stopped stay so."""
    todo = list(servers)
    if todo:
        with ThreadPoolExecutor(len(todo)) as pool:
            list(pool.map(Server.stop, todo))
