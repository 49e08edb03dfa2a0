"""Programs that spoil one thing in the engine and then launch a server, for a fork of the zygote.

The engine's processes are forked from the program, so they all run the spoilt code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sglang_spec import process
from sglang_spec.server import Spawn

from kit.preloaded import Zygote

RUN = """
import runpy, sys
{setup}
sys.argv = ["sglang.launch_server", *sys.argv[1:]]
runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
"""


def spawner(zygote: Zygote, program: Path, setup: str) -> Spawn:
    """Starts the server's command with `setup` (Python source) run first; `program` is written."""
    program.write_text(RUN.format(setup=setup))

    def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
        assert list(command[:3]) == [sys.executable, "-m", "sglang.launch_server"]
        return zygote.start(str(program), command[3:], log, env)

    return spawn
