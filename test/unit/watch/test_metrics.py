"""The Prometheus counters, which are brought up to date now and then, against what was counted."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY
from sglang.srt.spec_hardening.watch.alarm import State, Verdict
from sglang.srt.spec_hardening.watch.counts import Counts, Step
from sglang.srt.spec_hardening.watch.metrics import BUCKETS, Metrics
from sglang.srt.spec_hardening.watch.phases import Cycle, band


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    before = set(REGISTRY._collector_to_names)
    yield Metrics({"model_name": "m"})
    for made in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(made)


def shown(name: str, **labels: object) -> float | None:
    every = {"model_name": "m"} | {name: str(value) for name, value in labels.items()}
    return REGISTRY.get_sample_value(f"sglang:{name}", every)


def test_the_counters_show_what_was_counted_whenever_they_are_told(metrics: Metrics) -> None:
    dice, counts, now = random.Random(5), Counts(), 0.0
    for _ in range(400):
        plain = dice.random() < 0.2
        steps = 0 if plain else dice.choice((0, 2, 3))
        correct = [dice.randint(0, steps) for _ in range(dice.randint(0, 5))]
        counts.launch(now)
        now += dice.random()
        counts.observe(Step(steps, correct, plain), now)
        if dice.random() < 0.1:
            metrics.counted(counts)
    metrics.counted(counts)
    metrics.counted(counts)  # nothing is new
    assert shown("spec_plain_cycles_total") == counts.plain_cycles > 0
    for width, cycles in counts.cycles.items():
        assert shown("spec_verify_cycles_total", num_steps=width) == cycles > 0
    for (width, position), proposed in counts.proposed.items():
        key = {"num_steps": width, "position": position}
        assert shown("spec_proposed_drafts_total", **key) == proposed > 0
        assert shown("spec_correct_drafts_total", **key) == counts.correct[width, position] > 0
    for on, name in ((True, "on"), (False, "off")):
        seconds = shown("spec_decode_seconds_total", speculation=name)
        assert seconds == pytest.approx(counts.seconds[on]) and seconds
    for change, times in counts.switches.items():
        key = {"from_steps": change.before, "to_steps": change.after, "reason": change.reason}
        assert shown("spec_switches_total", **key) == times


def test_a_draft_that_nothing_is_accepted_of_has_a_counter_of_none(metrics: Metrics) -> None:
    counts = Counts()
    counts.observe(Step(1, [0]), 0.0)
    metrics.counted(counts)
    assert shown("spec_correct_drafts_total", num_steps=1, position=1) == 0


def test_the_histogram_of_phases_equals_a_recount_by_bands(metrics: Metrics) -> None:
    dice = random.Random(6)
    cycles = [Cycle(dice.randint(1, 300), {"verify": 10 ** dice.uniform(-5, 0)}) for _ in range(99)]
    for cycle in cycles:
        metrics.cycle(cycle)
    assert shown("spec_phase_seconds_count", phase="verify", batch_size="7") is None, "no band"
    for size in ("1", "2", "3-4", "33-64", "129-256", "257+"):
        seconds = [cycle.seconds["verify"] for cycle in cycles if band(cycle.rows) == size]
        key = {"phase": "verify", "batch_size": size}
        assert (shown("spec_phase_seconds_count", **key) or 0) == len(seconds)
        assert (shown("spec_phase_seconds_sum", **key) or 0) == pytest.approx(sum(seconds))
        for edge in BUCKETS if seconds else ():
            within = len([each for each in seconds if each <= edge])
            assert shown("spec_phase_seconds_bucket", **key, le=edge) == within


def test_a_phase_of_microseconds_and_one_of_a_second_have_buckets() -> None:
    assert BUCKETS[0] <= 1e-5 and BUCKETS[-1] >= 1 and list(BUCKETS) == sorted(set(BUCKETS))


def test_one_state_is_shown_and_no_other(metrics: Metrics) -> None:
    for state in State:
        metrics.verdict(Verdict(state))
        assert {each: shown("spec_state", state=each) for each in State} == {
            each: float(each is state) for each in State
        }
