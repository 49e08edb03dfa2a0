"""Servers of the tiny pair behind `sglang-router`, all with one API key."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from sglang_spec import host, process
from sglang_spec.client import KEY_VARIABLE
from sglang_spec.models import tiny_pair
from sglang_spec.server import Launch, Server, Speculation

from .faulty_server import PROGRAM, VARIABLE
from .guide import commands
from .preloaded import Zygote
from .routed_asks import KEY, KEYED
from .servers import spawner

GUIDE = Path(__file__).resolve().parents[2] / "docs/operations.md"
SETTLED = 1.0  # seconds in which what was chosen before a server was out has been sent


def why_none() -> str:
    """Why this cannot run here, "" if it can."""
    if host.device() != "cpu":
        return "two servers of the tiny pair run on the CPU"
    if importlib.util.find_spec("sglang_router") is None:
        return "needs sglang-router (pyproject.toml has the version)"
    return ""


@dataclass
class Setup:
    """The servers by URL, and the router before them."""

    folder: Path
    zygote: Zygote
    servers: dict[str, Server] = field(default_factory=dict)
    router: str = ""
    metrics: str = ""

    def start(self, port: int | None = None, fault: Path | None = None) -> Server:
        """A server, not waited for. `fault`: the file that makes it one of `kit.faulty`."""
        pair = tiny_pair()
        secrets = self.folder / "secrets.yaml"
        secrets.write_text(f"api-key: {KEY}\n")
        launch = Launch(
            pair.target,
            Speculation(pair.draft),
            arguments=(
                *("--skip-server-warmup", "--speculative-verify-timeout", "2"),
                *("--config", str(secrets)),
            ),
            environment={} if fault is None else {VARIABLE: str(fault)},
        )
        log = self.folder / f"server-{len(list(self.folder.glob('server-*')))}.log"
        plain = spawner(self.zygote)

        def faulty(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
            return self.zygote.start(str(PROGRAM), command[3:], log, env)

        server = Server(launch, log, port, spawn=plain if fault is None else faulty)
        self.servers[server.url] = server
        return server

    def sent(self, url: str) -> int:
        """How many requests the router has sent to this server, answered or not."""
        return sum(self._of(name, url) for name in ("cb_outcomes_total", "requests_active"))

    def under_way(self, url: str) -> int:
        """How many requests the router waits for at this server."""
        return self._of("requests_active", url)

    def _of(self, name: str, url: str) -> int:
        start = f'smg_worker_{name}{{worker="{url}"'
        lines = httpx.get(self.metrics, timeout=30).text.splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def router_words(port: int, metrics: int, servers: list[str], key: str = KEY) -> list[str]:
    """The guide's own command, for these servers: what is measured is what is written there.

    `key` "" leaves its option out: a router that asks its clients for none.
    """
    line = next(line for line in commands(GUIDE) if "sglang_router.launch_router" in line)
    words = line.replace("'", "").replace('"', "").split()
    at = words.index("--worker-urls")
    kept = words[1:at]  # after `python`
    for flag, value in (("--host", "127.0.0.1"), ("--port", port), ("--prometheus-port", metrics)):
        kept[kept.index(flag) + 1] = str(value)
    asked = kept.index("--api-key")
    kept[asked : asked + 2] = ["--api-key", key] if key else []
    return [sys.executable, *kept, "--worker-urls", *servers]


@contextmanager
def setup(folder: Path) -> Iterator[Setup]:
    zygote = Zygote()
    made = Setup(folder, zygote)
    try:
        for _ in range(2):
            made.start().wait_ready()
        with routing(folder / "router.log", list(made.servers)) as (made.router, made.metrics):
            yield made
    finally:
        for server in made.servers.values():
            server.stop()
        zygote.close()


@contextmanager
def routing(log: Path, servers: list[str], key: str = KEY) -> Iterator[tuple[str, str]]:
    """A router that knows these servers: its URL, and that of its metrics."""
    port, metrics = process.free_port(), process.free_port()
    url = f"http://127.0.0.1:{port}"
    words = router_words(port, metrics, servers, key)
    router = process.spawn(words, log, dict(os.environ))
    try:
        wait(lambda: healthy_at(url) == len(servers), "the router knows its servers")
        yield url, f"http://127.0.0.1:{metrics}/metrics"
    finally:
        process.stop(router)


@contextmanager
def environment_key() -> Iterator[None]:
    """The key where `sglang-spec` looks for it."""
    before = os.environ.get(KEY_VARIABLE)
    os.environ[KEY_VARIABLE] = KEY
    try:
        yield
    finally:
        os.environ.pop(KEY_VARIABLE)
        if before is not None:
            os.environ[KEY_VARIABLE] = before


def healthy(made: Setup) -> int:
    """How many servers the router sends to."""
    return healthy_at(made.router)


def healthy_at(router: str) -> int:
    try:
        found = httpx.get(f"{router}/workers", timeout=10, headers=KEYED).json()["workers"]
    except httpx.HTTPError:
        return 0
    return sum(one["is_healthy"] for one in found)


def wait(done: Callable[[], bool], what: str, seconds: float = 120.0) -> float:
    begun = time.monotonic()
    while not done():
        if time.monotonic() > begun + seconds:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - begun
