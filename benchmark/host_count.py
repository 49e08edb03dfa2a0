"""`sglang.launch_server` that counts calls of our modules: a program for host_cost.py --count only.

Every 50 decode cycles the counts since the start of serving are written to the file named by
`SPEC_BENCH_CALLS`. Runs under both start methods: a spawned rank imports this as its main module.
"""

from __future__ import annotations

import json
import os
import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "SPEC_BENCH_CALLS"
EVERY = 50
NAMES = ("launched", "enter", "begin", "ended", "completed")


def counted(module: Any, name: str, calls: Counter[str]) -> Callable[..., Any]:
    plain: Callable[..., Any] = getattr(module, name)

    def call(*args: Any) -> Any:
        # Prefills, which enter stages too, are no cycles.
        if name != "enter" or args[0] != "prefill":
            calls[name] += 1
        if name == "observe" and calls[name] % EVERY == 0:
            Path(os.environ[VARIABLE]).write_text(json.dumps(calls))
        return plain(*args)

    return call


if VARIABLE in os.environ:
    from sglang.srt.spec_hardening import cycle
    from sglang.srt.spec_hardening.watch import live

    seen: Counter[str] = Counter()
    for each in NAMES:
        setattr(cycle, each, counted(cycle, each, seen))
    live.observe = counted(live, "observe", seen)

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
