"""Servers that start ahead of their tests, several at once, where the host has room for that.

A GPU host has many cores and memory for many small servers, but a server takes most of a minute to
start, nearly all of it on one core. Tests say beforehand which servers they will ask for, in which
order; while one is being asked, the next ones start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sglang_spec import host
from sglang_spec.client import Client
from sglang_spec.server import Launch, Server, ServerError

from .servers import ServerPool

# Each start keeps two cores busy, and a server holds about 5 GB of host memory.
MOST_AT_ONCE = 8
READY_WITHIN = 700.0  # seconds, kernels compiled on the way included


def room() -> int:
    """How many servers this host can start at once: one on the CPU, where tests share cores;
    `$SPEC_TEST_SERVERS` at most, where several test runs share the host (`gpu_visit`)."""
    if host.device() == "cpu":
        return 1
    most = int(os.environ.get("SPEC_TEST_SERVERS", MOST_AT_ONCE))
    return max(1, min(most, MOST_AT_ONCE, (os.cpu_count() or 2) // 2))


def key(launch: Launch) -> str:
    """Equal for launches that one server can serve."""
    return repr((launch.command(0), sorted(launch.environment.items()), launch.threads))


class Fleet:
    """`expect` launches in the order of their use; `client` waits for one, `done` stops it."""

    def __init__(self, pool: ServerPool, at_once: int | None = None) -> None:
        self._pool = pool
        self._at_once = at_once or room()
        self._waiting: dict[str, tuple[Launch, str]] = {}
        self._running: dict[str, Server] = {}
        self._clients: dict[str, Client] = {}

    def expect(self, launches: Iterable[tuple[str, Launch]]) -> None:
        """Names (for the logs) and launches; those that run or wait already are left alone."""
        for name, launch in launches:
            if key(launch) not in self._running:
                self._waiting.setdefault(key(launch), (launch, name))
        self._start_next()

    def client(self, launch: Launch, name: str = "fleet") -> Client:
        """A client of the ready server with exactly these flags.

        Raises:
            ServerError: it ended or did not get ready; asked again, it says so again at once.
        """
        return self._ready(launch, name)[1]

    def server(self, launch: Launch, name: str = "fleet") -> Server:
        return self._ready(launch, name)[0]

    def _ready(self, launch: Launch, name: str) -> tuple[Server, Client]:
        wanted = key(launch)
        if wanted not in self._running:
            _, name = self._waiting.pop(wanted, (launch, name))
            self._running[wanted] = self._pool.start(launch, name)
        server = self._running[wanted]
        if wanted not in self._clients:
            server.wait_ready(READY_WITHIN)
            self._clients[wanted] = Client(server.url)
        elif server.returncode is not None:
            raise ServerError(f"the server ended with {server.returncode}:\n{server.log_tail()}")
        return server, self._clients[wanted]

    def done(self, launch: Launch) -> None:
        """No test will ask this server any more: stop it and start the next."""
        server = self._running.pop(key(launch), None)
        client = self._clients.pop(key(launch), None)
        self._waiting.pop(key(launch), None)
        if client is not None:
            client.close()
        if server is not None:
            server.stop()
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._at_once:
            wanted = next(iter(self._waiting))
            launch, name = self._waiting.pop(wanted)
            self._running[wanted] = self._pool.start(launch, name)

    def close(self) -> None:
        self._waiting.clear()
        for client in self._clients.values():
            client.close()
        for server in self._running.values():
            server.stop()
        self._clients.clear()
        self._running.clear()
