"""Where the time of a cycle goes: marks become seconds, without waiting and without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_spec.hardening.watch.laps import MOST_OUT, Laps
from sglang_spec.hardening.watch.phases import EDGES, PHASES, Cycle, Phases, Sums, band


class Device:
    """A clock whose device is behind the host: a mark is over once `done` has reached it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = float("inf")

    def mark(self) -> float:
        return self.now

    def passed(self, mark: float) -> bool:
        return mark <= self.done

    def seconds(self, begun: float, ended: float) -> float:
        assert self.passed(ended), "asked for a time that is not known yet"
        return ended - begun


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def cycles() -> list[Cycle]:
    return []


@pytest.fixture
def laps(device: Device, cycles: list[Cycle]) -> Laps:
    return Laps(device, cycles.append)


def run(laps: Laps, device: Device, requests: list[str], **phases: float) -> None:
    assert not laps.passes_over()
    laps.begin(requests)
    for phase, seconds in phases.items():
        if phase != "prepare":
            laps.mark(phase)
        device.now += seconds
    laps.end()


@given(st.integers(1, 5000))
def test_every_batch_size_has_one_band_and_bands_are_in_order(rows: int) -> None:
    name = band(rows)
    lower, _, upper = name.rstrip("+").partition("-")
    assert int(lower) <= rows
    assert rows <= (int(upper or lower) if not name.endswith("+") else rows)
    assert band(1) == "1" and band(3) == band(4) == "3-4" and band(EDGES[-1] + 1) == "257+"


def test_phases_fill_the_time_between_two_cycles(
    laps: Laps, device: Device, cycles: list[Cycle]
) -> None:
    run(laps, device, ["a"], prepare=1, draft=2, verify=10, sample=3, draft_extend=4)
    device.now += 5
    run(laps, device, ["a", "b"], prepare=1, draft=2, verify=10, sample=3, draft_extend=4)
    laps.settle()
    first, second = cycles
    assert first == Cycle(
        1, {"prepare": 1, "draft": 2, "verify": 10, "sample": 3, "draft_extend": 4}
    )
    assert second.rows == 2
    assert second.seconds["wait"] == 5
    assert sum(first.seconds.values()) + sum(second.seconds.values()) == device.now


def test_a_phase_that_comes_twice_adds_up(laps: Laps, device: Device, cycles: list[Cycle]) -> None:
    assert not laps.passes_over()
    laps.begin(["a"])
    for phase, seconds in (("draft", 2.0), ("prepare", 3.0), ("verify", 7.0)):
        device.now += 1.0
        laps.mark(phase)
        device.now += seconds - 1.0
    laps.end()
    laps.settle()
    assert cycles[0].seconds == {"prepare": 4.0, "draft": 2.0, "verify": 6.0}


@pytest.mark.parametrize("why", ["prefill", "others"])
def test_what_is_no_wait_for_the_cycle_before_is_not_counted(
    laps: Laps, device: Device, cycles: list[Cycle], why: str
) -> None:
    """A prefill, or the time that a server without requests idles."""
    run(laps, device, ["a"], prepare=1, verify=2)
    if why == "prefill":
        laps.interrupt()
    device.now += 3600
    run(laps, device, ["a" if why == "prefill" else "b"], prepare=1, verify=2)
    laps.settle()
    assert [cycle.seconds for cycle in cycles] == [{"prepare": 1, "verify": 2}] * 2


def test_marks_outside_of_a_cycle_are_nothing(
    laps: Laps, device: Device, cycles: list[Cycle]
) -> None:
    laps.mark("draft_extend")  # of a prefill
    laps.end()
    laps.settle()
    assert cycles == []


@given(st.integers(1, 20), st.integers(0, 90))
def test_of_every_nth_cycle_all_phases_are_timed_and_of_the_others_none(every: int, n: int) -> None:
    device, cycles = Device(), list[Cycle]()
    laps = Laps(device, cycles.append, every)
    marks = 0

    def mark() -> float:
        nonlocal marks
        marks += 1
        return device.now

    device.mark = mark  # type: ignore[method-assign]
    for number in range(n):
        if not laps.passes_over():
            laps.begin(["a"])
        device.now += 1
        laps.mark("verify")
        device.now += 2 + number  # so that each cycle has its own time
        laps.end()
        device.now += 4
    laps.settle()
    timed = list(range(0, n, every))
    assert [cycle.seconds["verify"] for cycle in cycles] == [2 + number for number in timed]
    assert [sum(cycle.seconds.values()) for cycle in cycles[1:]] == [
        7 + number for number in timed[1:]
    ], "from the end of the cycle before, which was not timed"
    assert marks <= 3 * len(timed) + (1 + n // every if every > 1 else 0)


def test_a_prefill_before_a_timed_cycle_is_no_wait(device: Device, cycles: list[Cycle]) -> None:
    laps = Laps(device, cycles.append, 3)
    for number in range(4):
        if number == 3:
            laps.interrupt()
        if not laps.passes_over():
            laps.begin(["a"])
        device.now += 1
        laps.end()
        device.now += 5
    laps.settle()
    assert [cycle.seconds for cycle in cycles] == [{"prepare": 1}] * 2


def test_a_lap_is_read_when_its_device_is_through_and_never_before(
    laps: Laps, device: Device, cycles: list[Cycle]
) -> None:
    device.done = 0.0
    for _ in range(3):
        run(laps, device, ["a"], prepare=1, verify=2)
    laps.settle()
    assert cycles == []
    device.done = 4.0  # in the middle of the second
    laps.settle()
    assert len(cycles) == 1
    device.done = 9.0
    laps.settle()
    assert [sum(cycle.seconds.values()) for cycle in cycles] == [3, 3, 3]


def test_a_device_that_never_answers_costs_a_bounded_memory(
    laps: Laps, device: Device, cycles: list[Cycle]
) -> None:
    device.done = -1.0
    for _ in range(3 * MOST_OUT):
        run(laps, device, ["a"], prepare=1)
    device.done = float("inf")
    laps.settle()
    assert len(cycles) == MOST_OUT


def test_the_line_of_the_log() -> None:
    phases = Phases()
    assert phases.take_line() == ""
    for _ in range(4):
        phases.add(Cycle(3, {"draft": 0.0004, "verify": 0.0112, "sample": 0.0002}))
    assert phases.take_line() == "verify 94.9 % of 11.8 ms, draft 3.4 %, sample 1.7 %"
    assert phases.take_line() == "", "said once"


def test_details_are_means_by_band_in_order() -> None:
    phases = Phases()
    for rows, seconds in ((64, 0.004), (1, 0.001), (1, 0.003), (300, 0.1), (12, 0.002)):
        phases.add(Cycle(rows, {"verify": seconds, "wait": 0.001}))
    details = phases.details()
    assert list(details) == ["1", "9-16", "33-64", "257+"]
    assert details["1"] == {
        "cycles": 2,
        "cycle_ms": 3.0,
        "phases_ms": {"wait": 1.0, "verify": 2.0},
    }


@given(
    st.lists(st.dictionaries(st.sampled_from(PHASES), st.floats(1e-6, 10), min_size=1), min_size=1)
)
def test_the_sum_of_phases_is_the_cycle(seen: list[dict[str, float]]) -> None:
    sums = Sums()
    for seconds in seen:
        sums.add(Cycle(1, seconds))
    details = sums.details()
    assert details["cycle_ms"] == pytest.approx(sum(details["phases_ms"].values()), abs=1e-3)
    wanted = 1e3 * sum(sum(one.values()) for one in seen) / len(seen)
    assert details["cycle_ms"] == pytest.approx(wanted, abs=1e-3)
