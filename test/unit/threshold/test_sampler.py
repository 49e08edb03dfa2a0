"""Which live batches are timed, and that nothing waits for the device."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sglang_spec.hardening.threshold.cost import PHASES, CostTable, Line
from sglang_spec.hardening.threshold.drift import Drift
from sglang_spec.hardening.threshold.pending import CAPACITY
from sglang_spec.hardening.threshold.sampler import DENSE, EVERY, WARM, Sampler

ROWS = 4


class Device:
    """A clock of which the test says what time it is and what the device is past."""

    def __init__(self) -> None:
        self.now = 0.0
        self.marks = 0
        self.is_done = True

    def mark(self) -> float:
        self.marks += 1
        return self.now

    def passed(self, mark: float) -> bool:
        return self.is_done

    def seconds(self, begun: float, ended: float) -> float:
        assert self.is_done, "the device was asked for a time that it does not know yet"
        return ended - begun


class Noted(Drift):
    """Notes what it is told."""

    def add(self, speculative: bool, rows: int, context: float, seconds: float) -> None:
        self.noted.append((speculative, rows, context, seconds))

    noted: list[tuple[Any, ...]]


def sampler() -> tuple[Sampler, Device, Noted]:
    seconds = {phase: (1e-3,) for phase in PHASES}
    device, drift = Device(), Noted(CostTable(4, (Line(100, (1,), seconds),)))
    drift.noted = []
    return Sampler(device, drift), device, drift


def run(made: Sampler, device: Device, batches: int, on: bool = True, first: int = 0) -> None:
    """Batches of 1 s; while it is off the draft catches up in every 16th, which takes 5 s more."""
    for number in range(first, first + batches):
        catches_up = not on and number % CAPACITY == CAPACITY - 1
        made.batch(on, ROWS, 100 * ROWS, catches_up)
        device.now += 6.0 if catches_up else 1.0


@pytest.mark.parametrize("on", [True, False])
def test_a_batch_is_timed_from_its_begin_to_that_of_the_next(on: bool) -> None:
    made, device, drift = sampler()
    run(made, device, DENSE + 20 * EVERY, on)
    assert set(drift.noted) == {(on, ROWS, 100.0, 1.0)}, "a catching-up was timed with its batch"
    assert len(drift.noted) >= (DENSE - WARM) * 15 // 16 + 15
    assert math.gcd(EVERY, CAPACITY) == 1, "all that are timed could be catching-ups"


def test_after_a_switch_all_are_timed_then_one_in_seven() -> None:
    made, device, drift = sampler()
    run(made, device, DENSE)
    assert len(drift.noted) == DENSE - WARM - 2, "the last of them is not over yet"
    marks = device.marks
    run(made, device, 10 * EVERY)
    assert device.marks - marks <= 2 * 10 + 1
    run(made, device, WARM, on=False)
    count = len(drift.noted)
    run(made, device, 16, on=False, first=WARM)
    assert len([one for one in drift.noted[count:] if not one[0]]) >= 11


def test_the_first_batches_after_a_switch_are_not_timed() -> None:
    made, device, drift = sampler()
    run(made, device, 20)
    for number in range(10):
        made.batch(False, ROWS, 400, False)
        device.now += 50.0 if number < WARM else 1.0
    assert {one[3] for one in drift.noted if not one[0]} == {1.0}


def test_a_prefill_between_two_batches_is_no_part_of_either() -> None:
    made, device, drift = sampler()
    for number in range(30):
        run(made, device, 1)
        if number % 6 == 5:
            device.now += 100.0
            made.prefilled()
    assert drift.noted and {one[3] for one in drift.noted} == {1.0}
    assert len(drift.noted) <= 5 * (6 - WARM - 1), "the first after a prefill were timed"


def test_a_device_that_is_behind_is_not_waited_for() -> None:
    made, device, drift = sampler()
    device.is_done = False
    run(made, device, 1000)
    assert drift.noted == []
    device.is_done = True
    run(made, device, 1)
    assert 0 < len(drift.noted) <= 64
