"""Real servers shared by tests: one per set of flags, started when first asked for."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from sglang_spec import host, process
from sglang_spec.client import Client
from sglang_spec.server import Launch, Server, Spawn

from .preloaded import Zygote

LOGS = Path(__file__).resolve().parents[2] / "build/logs"
# Each server holds about 1 GB of its own; more than this many at once gain nothing on two cores.
MOST_ALIVE = 4


def spawner(zygote: Zygote | None) -> Spawn:
    """What `Server` starts its command with: a fork on the CPU, a fresh process elsewhere."""
    if zygote is None:
        return process.spawn

    def fork(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
        assert command[1] == "-m", command
        return zygote.start(command[2], command[3:], log, env)

    return fork


class ServerPool:
    """`pool.client(launch)`: a client of a ready server with exactly these flags.

    The least recently used server is stopped when there are too many; `close` stops all.
    """

    def __init__(self) -> None:
        on_cpu = host.device() == "cpu" and not os.environ.get("SGLANG_SPEC_TEST_COLD_START")
        self.zygote = Zygote() if on_cpu else None
        self._alive: OrderedDict[str, tuple[Server, Client]] = OrderedDict()
        self._started = 0

    def client(self, launch: Launch) -> Client:
        return self._entry(launch)[1]

    def server(self, launch: Launch) -> Server:
        return self._entry(launch)[0]

    def start(self, launch: Launch, name: str = "own") -> Server:
        """A server that is the caller's alone (to break, to kill); not waited for, not kept."""
        return Server(launch, self.log(name), spawn=spawner(self.zygote))

    def log(self, name: str) -> Path:
        """A file that no other server of this run writes to."""
        self._started += 1
        return LOGS / f"test-{os.getpid()}-{self._started}-{name}.log"

    def _entry(self, launch: Launch) -> tuple[Server, Client]:
        key = repr((launch.command(0), sorted(launch.environment.items()), launch.threads))
        if key in self._alive and self._alive[key][0].returncode is None:
            self._alive.move_to_end(key)
            return self._alive[key]
        self.discard(key)
        while len(self._alive) >= MOST_ALIVE:
            self.discard(next(iter(self._alive)))
        server = self.start(launch, launch.model.parent.name)
        try:
            server.wait_ready()
        except BaseException:
            server.stop()
            raise
        self._alive[key] = (server, Client(server.url))
        return self._alive[key]

    def discard(self, key: str) -> None:
        if key in self._alive:
            server, client = self._alive.pop(key)
            client.close()
            server.stop()

    def close(self) -> None:
        for key in list(self._alive):
            self.discard(key)
        if self.zygote is not None:
            self.zygote.close()
