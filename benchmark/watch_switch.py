"""`sglang.launch_server` whose watch a file switches off: a program for benchmark/phases.py only.

While the file named by `SPEC_BENCH_WATCH_OFF` exists nothing is watched. Both states run in one
process, whose speed is its own: two processes with equal flags differ by more than what is looked
for. Runs under both start methods: a spawned rank imports this file as its main module.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from typing import Any

VARIABLE = "SPEC_BENCH_WATCH_OFF"


def switched(cycle: Any, live: Any) -> Callable[[Any], None]:
    """`cycle.launched`, which the worker calls first in a cycle, behind the switch."""
    plain: Callable[[Any], None] = cycle.launched
    kept: list[Any] = []

    def launched(batch: Any) -> None:
        if live._watch is not None:
            kept[:] = [live._watch]
        live._watch = None if os.path.exists(os.environ[VARIABLE]) else next(iter(kept), None)
        cycle.watch_with(live._watch)
        plain(batch)

    return launched


if VARIABLE in os.environ:
    from sglang.srt.spec_hardening import cycle
    from sglang.srt.spec_hardening.watch import live

    cycle.launched = switched(cycle, live)

if __name__ == "__main__":
    # `__main__` stays this file: a spawned rank imports it again.
    runpy.run_module("sglang.launch_server", run_name="__main__")
