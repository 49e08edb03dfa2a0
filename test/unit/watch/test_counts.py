"""Counters against a plain recount, under random switches of the width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_spec.hardening.watch.counts import Change, Counts, Step

MOST_STEPS = 6


@dataclass(frozen=True)
class Batch:
    """A batch, the seconds from the result before it to its launch, and from there to its own."""

    step: Step
    idle: float
    out: float


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    plain = draw(st.booleans())
    steps = 0 if plain else draw(st.integers(0, MOST_STEPS))
    correct = draw(st.lists(st.integers(0, steps), max_size=9))
    time = st.floats(0, 100)
    return Batch(Step(steps, correct, plain), draw(time), draw(time))


def observe(seen: Sequence[Batch], overlap: bool) -> Counts:
    """Under overlap a batch is launched before the result of the one before is there."""
    counts = Counts()
    now = 0.0
    for number, batch in enumerate(seen):
        if not overlap or number == 0:
            now += batch.idle
            counts.launch(now)
        now += batch.out
        if overlap and number + 1 < len(seen):
            counts.launch(now - batch.out / 2)
        counts.observe(batch.step, now)
    return counts


@given(st.lists(batches(), max_size=60), st.booleans())
def test_counters_equal_a_recount(seen: list[Batch], overlap: bool) -> None:
    counts = observe(seen, overlap)
    rows = [
        (batch.step, count) for batch in seen for count in batch.step.correct_drafts
    ]  # one entry for each request of each batch
    for steps in range(MOST_STEPS + 1):
        cycles = [count for step, count in rows if not step.plain and step.num_steps == steps]
        assert counts.cycles[steps] == len(cycles)
        for position in range(1, MOST_STEPS + 1):
            key = steps, position
            assert counts.proposed[key] == (len(cycles) if position <= steps else 0)
            assert counts.correct[key] == len([n for n in cycles if n >= position])
    assert counts.plain_cycles == len([0 for step, _ in rows if step.plain])
    # Sums that a client sees: drafts accepted, and the tokens of all steps.
    assert sum(counts.correct.values()) == sum(count for _, count in rows)
    assert sum(counts.proposed.values()) == sum(
        step.num_steps for step, _ in rows if not step.plain
    )


@given(st.lists(batches(), max_size=60), st.booleans())
def test_rates_are_within_bounds_whatever_the_width_was(seen: list[Batch], overlap: bool) -> None:
    details = observe(seen, overlap).details()
    for place in details["positions"]:
        assert 0 <= place["correct"] <= place["proposed"]
    length = details["accept_length"]
    assert length is None or 1 <= length <= MOST_STEPS + 1


@given(st.lists(batches(), max_size=60))
def test_switches_equal_a_recount(seen: list[Batch]) -> None:
    counts = observe(seen, overlap=False)
    wanted = 0
    for before, after in pairwise(seen):
        wanted += (before.step.num_steps, before.step.plain) != (
            after.step.num_steps,
            after.step.plain,
        )
    assert sum(counts.switches.values()) == wanted
    for change in counts.switches:
        assert change.reason in ("batch_size", "adaptive")


@given(st.lists(batches(), max_size=60), st.booleans())
def test_time_on_and_off_is_the_time_that_batches_were_out(
    seen: list[Batch], overlap: bool
) -> None:
    """Neither the time between them, nor twice where two were out at once."""
    counts = observe(seen, overlap)
    for on in (True, False):
        out = sum(batch.out for batch in seen if (batch.step.num_steps > 0) is on)
        assert counts.seconds[on] == pytest.approx(out, abs=1e-6)


def test_a_switch_has_the_reason_of_the_policy_that_made_it() -> None:
    counts = Counts(threshold="cost")
    found = [
        counts.observe(step, 0.0)
        for step in (
            Step(3, [1]),
            Step(0, [0], plain=True),
            Step(3, [2]),
            Step(1, [1]),
            Step(1, [1]),
            Step(0, [0]),
        )
    ]
    assert found == [
        None,
        Change(3, 0, "cost"),
        Change(0, 3, "cost"),
        Change(3, 1, "adaptive"),
        None,
        Change(1, 0, "adaptive"),
    ]


def test_steps_of_width_one_and_plain_ones_propose_nothing() -> None:
    counts = Counts()
    for step in (Step(0, [0, 0]), Step(0, [0], plain=True), Step(2, [1, 2])):
        counts.observe(step, 0.0)
    details = counts.details()
    assert details["accept_length"] == 2.5
    assert details["verify_cycles"] == {"0": 2, "2": 2}
    assert details["plain_cycles"] == 1
