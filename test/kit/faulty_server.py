"""A server that does something else while it runs: by default a fault, see `kit.faulty`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from sglang_spec import process
from sglang_spec.client import Client
from sglang_spec.server import Launch, Server

from .servers import LOGS, ServerPool

VARIABLE = "SPEC_TEST_FAULT"  # read by PROGRAM
PROGRAM = Path(__file__).with_name("faulty.py")


class FaultyServer:
    """`with FaultyServer(pool, launch, file, name) as server: server.plant("accept 3")`."""

    def __init__(
        self, pool: ServerPool, launch: Launch, file: Path, name: str, program: Path = PROGRAM
    ) -> None:
        file.write_text("")
        self._file = file
        self._program = str(program)
        self._pool = pool
        environment = {**launch.environment, VARIABLE: str(file)}
        self.server = Server(
            dataclasses.replace(launch, environment=environment),
            LOGS / f"test-{name}-faulty.log",
            spawn=self._spawn,
        )

    def _spawn(self, command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
        assert command[1:3] == ["-m", "sglang.launch_server"], command
        if self._pool.zygote is None:
            return process.spawn([sys.executable, self._program, *command[3:]], log, env)
        return self._pool.zygote.start(self._program, command[3:], log, env)

    def plant(self, fault: str) -> None:
        """Make the ranks faulty from the next step on, or whole (""); no request may be running."""
        self._file.write_text(fault)

    def __enter__(self) -> FaultyServer:
        try:
            self.server.wait_ready()
        except BaseException:
            self.server.stop()
            raise
        self.client = Client(self.server.url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        self.server.stop()
