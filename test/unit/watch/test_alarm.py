"""The alarm: what is sick, what is not, and that it clears by itself."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang_spec.hardening.watch.alarm import PARTS, Alarm, Rules, State, Verdict

RULES = Rules()
PART = RULES.window // PARTS


class Traffic:
    """Batches of eight requests, each of which decodes some cycles and is followed by another."""

    def __init__(self, alarm: Alarm, seed: int = 0) -> None:
        self.alarm = alarm
        self.now = 0.0
        self._dice = random.Random(seed)
        self._number = 0

    def run(
        self,
        cycles: int,
        rate: float,
        steps: int = 3,
        seconds: float = 0.05,
        length: int = 40,
        rows: int = 8,
    ) -> list[State]:
        """The state after each batch, until `cycles` cycles of a request were run."""
        states = []
        for number in range(-(-cycles // rows)):
            if number % length == 0:
                self._number += 1
            correct = [self._accepted(rate, steps) for _ in range(rows)]
            requests = [f"{self._number}-{row}" for row in range(rows)]
            self.now += seconds
            self.alarm.observe(steps, correct, requests, self.now)
            states.append(self.alarm.verdict.state)
        return states

    def _accepted(self, rate: float, steps: int) -> int:
        for position in range(steps):
            if self._dice.random() >= rate:
                return position
        return steps


def test_it_starts_as_the_self_test_says() -> None:
    assert Alarm().verdict == Verdict(State.HEALTHY)
    unproven = Alarm("--skip-speculative-self-test is set").verdict
    assert unproven.line == "unproven: --skip-speculative-self-test is set"


def test_drafts_of_which_none_is_accepted_within_one_window() -> None:
    traffic = Traffic(Alarm(tested=2.6))
    assert set(traffic.run(4096, 0.6)) == {State.HEALTHY}
    states = traffic.run(RULES.window + PART, 0.0)
    assert states[-1] is State.DEGRADED
    assert traffic.alarm.verdict.reason == (
        "accept length 1.00 over 512 verify cycles of 3 draft steps: drafts are proposed and none "
        "is accepted"
    )
    assert traffic.run(RULES.window + PART, 0.6)[-1] is State.HEALTHY, "it clears by itself"


def test_it_clears_to_what_the_self_test_left() -> None:
    traffic = Traffic(Alarm("weights are dummies"))
    assert traffic.run(RULES.window, 0.0)[-1] is State.DEGRADED
    assert traffic.run(2 * RULES.window, 0.6)[-1] is State.UNPROVEN


def test_a_fall_under_half_of_what_the_self_test_saw() -> None:
    traffic = Traffic(Alarm(tested=3.8))
    assert traffic.run(2048, 0.4)[-1] is State.DEGRADED
    assert "is under 0.5 of the self-test's 3.80" in traffic.alarm.verdict.reason


def test_a_fall_under_half_of_the_last_hours() -> None:
    traffic = Traffic(Alarm())
    assert set(traffic.run(20_000, 0.9)) == {State.HEALTHY}
    assert traffic.run(RULES.window + PART, 0.2)[-1] is State.DEGRADED
    assert "of the last hour's 3.4" in traffic.alarm.verdict.reason
    # Other traffic that stays is the new normal within the hour.
    states = traffic.run(4000, 0.2, seconds=8.0)
    assert states[-1] is State.HEALTHY


def test_one_odd_request_is_no_alarm() -> None:
    traffic = Traffic(Alarm(tested=2.6))
    states = traffic.run(5000, 0.0, rows=1, length=100_000)
    assert set(states) == {State.HEALTHY}


def test_fewer_steps_are_no_fall() -> None:
    """Adaptive speculation goes from 5 steps to 1: at most 2 tokens a cycle, of 5.7."""
    traffic = Traffic(Alarm())
    states = traffic.run(8192, 0.95, steps=5)
    states += traffic.run(4096, 0.95, steps=1)
    states += traffic.run(512, 0.95, steps=5)
    assert set(states) == {State.HEALTHY}


def test_steps_that_are_well_do_not_speak_for_those_that_are_sick() -> None:
    traffic = Traffic(Alarm())
    traffic.run(2 * RULES.window, rate=0.0, steps=3)
    for _ in range(4):
        assert set(traffic.run(PART, rate=0.0, steps=3)) == {State.DEGRADED}
        assert set(traffic.run(2 * RULES.window, rate=0.7, steps=1, seconds=0.01)) == {
            State.DEGRADED
        }


def test_steps_that_are_not_launched_any_more_are_forgotten() -> None:
    traffic = Traffic(Alarm())
    traffic.run(2 * RULES.window, rate=0.0, steps=3)
    enough = int(8 * RULES.stale / 0.05) + 3 * RULES.window
    assert traffic.run(enough, rate=0.7, steps=1)[-1] is State.HEALTHY


def test_steps_without_drafts_say_nothing() -> None:
    traffic = Traffic(Alarm(tested=2.6))
    assert set(traffic.run(4096, 0.0, steps=0)) == {State.HEALTHY}


def test_ranks_that_part() -> None:
    alarm = Alarm()
    alarm.ranks("in verify batches 1 to 16 rank TP0 accepted 20 drafts and rank TP1 19")
    assert alarm.verdict.state is State.DEGRADED
    assert "rank TP1 19" in alarm.verdict.line
    alarm.ranks(None)
    assert alarm.verdict == Verdict(State.HEALTHY)


@pytest.mark.parametrize("seed", range(4))
def test_ten_minutes_of_mixed_load_raise_nothing(seed: int) -> None:
    """Requests of very different acceptance, at 20 batches a second, in turns of some seconds."""
    dice = random.Random(seed)
    traffic = Traffic(Alarm(tested=2.2), seed)
    states = []
    while traffic.now < 600:
        states += traffic.run(
            dice.randrange(50, 800), dice.uniform(0.25, 0.85), rows=dice.choice((1, 4, 16))
        )
    assert set(states) == {State.HEALTHY}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 0.95), st.integers(1, 5))
def test_a_steady_draft_never_alarms(seed: int, rate: float, steps: int) -> None:
    length = 1 + sum(rate**position for position in range(1, steps + 1))
    traffic = Traffic(Alarm(tested=length), seed)
    assert set(traffic.run(6000, rate, steps)) == {State.HEALTHY}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.3, 0.95), st.integers(1, 5), st.integers(0, 2000))
def test_a_draft_that_dies_alarms_within_a_window_and_a_part(
    seed: int, rate: float, steps: int, before: int
) -> None:
    traffic = Traffic(Alarm(), seed)
    traffic.run(before, rate, steps)
    assert traffic.run(RULES.window + PART + 8, 0.0, steps)[-1] is State.DEGRADED
