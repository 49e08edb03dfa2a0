"""The self-test's state as a Prometheus gauge."""

from __future__ import annotations

from typing import Any

from .result import Result


def publish(collector: Any, result: Result) -> None:
    """`sglang:speculative_self_test{state="proven"|"unproven"} 1` next to the scheduler's others.

    `collector` is the scheduler's SchedulerMetricsCollector, None without `--enable-metrics`.
    """
    labels = getattr(collector, "labels", None)
    if labels is None:
        return
    from prometheus_client import Gauge

    gauge = Gauge(
        "sglang:speculative_self_test",
        "Whether the start-up self-test has decoded (state proven) or was left out (unproven).",
        labelnames=[*labels, "state"],
        multiprocess_mode="mostrecent",
    )
    gauge.labels(**labels, state=str(result.state)).set(1)
