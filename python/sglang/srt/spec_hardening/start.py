"""The last stages of a rank before it is called ready: nothing missing, and it can decode.

Called by: `run_scheduler_process` (patch `self-test-before-ready`), between the scheduler's
construction and its ready message, so that every front end (HTTP, gRPC, Engine) and every rank is
covered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from . import construction, distant, whole
from .comm import applied
from .self_test import metric
from .self_test.result import State
from .self_test.run import prove_decoding

logger = logging.getLogger(__name__)

_proving = False
_afterwards: list[Callable[[Any], None]] = []


def once_proven(call: Callable[[Any], None]) -> None:
    """Have `call(scheduler)` run after the self-test, on every rank, before the rank is ready."""
    _afterwards.append(call)


def prove(scheduler: Any) -> dict[str, Any]:
    """Raise if this rank is not whole or cannot decode; else mark it ready.

    What the ready message carries: what the self-test found (nothing without speculation) and what
    the rank reduces with (nothing if it is alone).
    """
    global _proving
    whole.check(scheduler)
    construction.enter("self_test")
    _proving = True
    try:
        result = prove_decoding(scheduler)
        for call in _afterwards:
            call(scheduler)
    finally:
        _proving = False
    distant.keep_alive(scheduler.server_args.nnodes)
    whole.mark_ready(decoded=result is not None and result.state is State.PROVEN)
    in_use = applied.of_rank(scheduler.tp_group)
    found: dict[str, Any] = {"communication_in_use": in_use} if in_use else {}
    if result is None:
        return found
    if scheduler.metrics_reporter.is_stats_logging_rank:
        log = logger.info if result.state is State.PROVEN else logger.warning
        log("%s", result.line)
    if scheduler.metrics_reporter.enable_metrics:
        metric.publish(scheduler.metrics_collector, result)
    return {**found, "speculative_self_test": result.as_dict()}


def is_proving() -> bool:
    """Whether the event loop is run by the self-test and nobody is served yet."""
    return _proving
