"""`sglang.launch_server` whose ranks but the first measure ten times too long: for tests only.

Runs under both start methods, like `kit.faulty`.
"""

from __future__ import annotations

import os
import runpy
from typing import Any

from sglang.srt.distributed import get_tp_group
from sglang.srt.spec_hardening.threshold.stopwatch import Stopwatch

VARIABLE = "SPEC_TEST_FAULT"
PLAIN = Stopwatch.seconds


def seconds(self: Stopwatch, begun: Any, ended: Any) -> float:
    return PLAIN(self, begun, ended) * (10.0 if get_tp_group().rank_in_group else 1.0)


if VARIABLE in os.environ:
    Stopwatch.seconds = seconds  # type: ignore[method-assign]

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
