"""`sglang.launch_server` whose ranks but the first measure ten times too long: for tests only.

The file named by `SPEC_TEST_FAULT` may hold two numbers: milliseconds that each plain step and each
verify take longer from now on, on every rank, so that the machine is another than at start. Every
other batch is timed and every eighth looked at, so that no test has to wait for hundreds of them.

Runs under both start methods, like `kit.faulty`.
"""

from __future__ import annotations

import functools
import os
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang.srt.distributed import get_tp_group
from sglang.srt.spec_hardening.threshold import exchange, sampler
from sglang.srt.spec_hardening.threshold.drift import Drift, Pace
from sglang.srt.spec_hardening.threshold.stopwatch import Stopwatch
from sglang.srt.spec_hardening.threshold.worker import BatchThreshold
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

VARIABLE = "SPEC_TEST_FAULT"
PLAIN = Stopwatch.seconds


def seconds(self: Stopwatch, begun: Any, ended: Any) -> float:
    return PLAIN(self, begun, ended) * (10.0 if get_tp_group().rank_in_group else 1.0)


def later(call: Callable[..., Any], word: int) -> Callable[..., Any]:
    """`call` after as many milliseconds as this word of the file says."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if said := Path(os.environ[VARIABLE]).read_text().split():
            time.sleep(1e-3 * float(said[word]))
        return call(*args, **kwargs)

    return called


if VARIABLE in os.environ:
    Stopwatch.seconds = seconds  # type: ignore[method-assign]
    sampler.EVERY = 2
    exchange.Drift = functools.partial(Drift, pace=Pace(every=8, window=12))  # type: ignore
    BatchThreshold._plain = later(BatchThreshold._plain, 0)  # type: ignore[method-assign]
    EAGLEWorkerV2.verify = later(EAGLEWorkerV2.verify, 1)

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
