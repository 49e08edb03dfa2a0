"""Run a server whose start is broken by `kit.broken_start`, and say what became of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglang_spec import process
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server

from .fault_run import LIMIT, Outcome, Plan, run_server
from .preloaded import Zygote

VARIABLE = "SPEC_TEST_BROKEN"  # read by PROGRAM
PROGRAM = str(Path(__file__).with_name("broken_start.py"))


def run_broken(
    zygote: Zygote | None,
    pair: Pair,
    how: str,
    arguments: Sequence[str] = (),
    limit: float = LIMIT,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """`how` as `broken_start` takes it. Stages have `limit` seconds."""

    def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
        assert command[1:3] == ["-m", "sglang.launch_server"], command
        if zygote is None:
            return process.spawn([sys.executable, PROGRAM, *command[3:]], log, env)
        return zygote.start(PROGRAM, command[3:], log, env)

    def start(launch: Launch, log: Path) -> Server:
        return Server(launch, log, spawn=spawn)

    stages = {VARIABLE: how, "SGLANG_SPEC_STAGE_TIMEOUT": str(limit)}
    plan = Plan("", arguments=tuple(arguments), environment={**stages, **(environment or {})})
    return run_server(zygote, pair, plan, limit, start)
