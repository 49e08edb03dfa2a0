"""The demo's arithmetic: acceptance from counters, ties from log-probabilities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_spec.demo import acceptance
from sglang_spec.demo.equality import Difference, first_difference, grid_step


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_accept_length_is_the_mean_of_what_each_cycle_yields(drafts: list[int]) -> None:
    histogram = [drafts.count(n) for n in range(5)]
    length = acceptance.accept_length(histogram)
    assert length == pytest.approx(sum(n + 1 for n in drafts) / len(drafts))
    positions = acceptance.position_acceptance(histogram)
    assert 1 + sum(positions) == pytest.approx(length)
    assert positions == sorted(positions, reverse=True)


def test_no_cycles_is_no_acceptance() -> None:
    assert acceptance.accept_length([]) == 0.0
    assert acceptance.position_acceptance([]) == []
    assert acceptance.pool([[1, 2], [0, 1, 5], []]) == [1, 3, 5]


@pytest.mark.parametrize(
    ("left", "right", "where"),
    [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((), (), None)],
)
def test_first_difference(left: tuple[int, ...], right: tuple[int, ...], where: int | None) -> None:
    assert first_difference(left, right) == where


@pytest.mark.parametrize(
    ("base_gap", "spec_gap", "tie", "exact"),
    [
        (0.0, 0.125, True, True),
        (0.125, 0.125, True, False),
        (0.25, 0.0, True, True),
        (0.25, 0.125, True, False),  # one step of a grid twice as wide
        (0.375, 0.125, False, False),
        (0.5, 0.125, False, False),
        (float("inf"), 0.125, False, False),
    ],
)
def test_a_tie_has_to_be_measured(base_gap: float, spec_gap: float, tie: bool, exact: bool) -> None:
    found = Difference(0, 3, 7, 9, base_gap, spec_gap, step=0.125)
    assert (found.tie, found.exact_tie) == (tie, exact)


def test_the_step_is_read_off_the_values_themselves() -> None:
    assert grid_step([-1.03, -1.53, -1.53, -1.655, -3.03]) == pytest.approx(0.125)
    assert grid_step([-2.0]) == 0.0
