"""What the watch sees as Prometheus metrics, next to the scheduler's others.

An increment writes to a mapped file and costs about as much as all counting of a cycle, so the
counters are brought up to date now and then, by what `Counts` has more than at the time before.
Names and labels follow `observability/metrics_collector.py`; docs/metrics.md explains each.
"""

from __future__ import annotations

from typing import Any

from .alarm import State, Verdict
from .counts import Counts
from .phases import Cycle, band

# Seconds: a phase of a tiny model on a fast GPU takes 20 us, a verify on a CPU a second.
BUCKETS = tuple(base * 10.0**power for power in range(-5, 1) for base in (1.0, 2.0, 5.0))


class Metrics:
    """The metrics of one scheduler. Made once in a process: names are registered for good."""

    def __init__(self, labels: dict[str, str]) -> None:
        """`labels` are those of the scheduler's collector."""
        from prometheus_client import Counter, Gauge, Histogram

        self._labels = labels
        self._children: dict[tuple[Any, ...], Any] = {}
        self._told: dict[Any, float] = {}

        def counter(name: str, text: str, *own: str) -> Any:
            return Counter(f"sglang:{name}", text, labelnames=[*labels, *own])

        self._proposed = counter(
            "spec_proposed_drafts_total",
            "Drafts proposed at a position, by the number of draft steps of their cycle.",
            "num_steps",
            "position",
        )
        self._correct = counter(
            "spec_correct_drafts_total",
            "Drafts accepted at a position, by the number of draft steps of their cycle.",
            "num_steps",
            "position",
        )
        self._cycles = counter(
            "spec_verify_cycles_total",
            "Verify cycles of a request, by the number of draft steps.",
            "num_steps",
        )
        self._plain = counter(
            "spec_plain_cycles_total", "Decode steps of a request while speculation is off."
        )
        self._switches = counter(
            "spec_switches_total",
            "Changes of the number of draft steps between two batches (0: off).",
            "from_steps",
            "to_steps",
            "reason",
        )
        self._seconds = counter(
            "spec_decode_seconds_total",
            "Seconds that decode batches were out, with speculation on and off.",
            "speculation",
        )
        self._phases = Histogram(
            "sglang:spec_phase_seconds",
            "Seconds of a phase of a decode cycle, by batch size.",
            labelnames=[*labels, "phase", "batch_size"],
            buckets=BUCKETS,
        )
        self._state = Gauge(
            "sglang:spec_state",
            "1 for the state that speculation is in: healthy, degraded or unproven.",
            labelnames=[*labels, "state"],
            multiprocess_mode="mostrecent",
        )

    def counted(self, counts: Counts) -> None:
        """Bring the counters up to date."""
        if counts.plain_cycles:
            self._to(counts.plain_cycles, self._plain)
        for steps, cycles in counts.cycles.items():
            self._to(cycles, self._cycles, num_steps=steps)
        for metric, drafts in ((self._proposed, counts.proposed), (self._correct, counts.correct)):
            for (steps, position), count in drafts.items():
                self._to(count, metric, num_steps=steps, position=position)
        for on, seconds in counts.seconds.items():
            if seconds:
                self._to(seconds, self._seconds, speculation="on" if on else "off")
        for change, times in counts.switches.items():
            self._to(
                times,
                self._switches,
                from_steps=change.before,
                to_steps=change.after,
                reason=change.reason,
            )

    def cycle(self, cycle: Cycle) -> None:
        """The times of a cycle are known."""
        size = band(cycle.rows)
        for phase, seconds in cycle.seconds.items():
            self._child(self._phases, phase=phase, batch_size=size).observe(seconds)

    def verdict(self, verdict: Verdict) -> None:
        for state in State:
            self._child(self._state, state=str(state)).set(int(state is verdict.state))

    def _to(self, value: float, metric: Any, **own: Any) -> None:
        """Raise a counter to a value that only grows."""
        child = self._child(metric, **own)
        told = self._told.get(child, 0)
        if value > told:
            child.inc(value - told)
            self._told[child] = value

    def _child(self, metric: Any, **own: Any) -> Any:
        """The metric with its labels; looked up once for each set, which costs more than to add."""
        key = (id(metric), *own.values())
        if key not in self._children:
            self._children[key] = metric.labels(**self._labels, **own)
        return self._children[key]
