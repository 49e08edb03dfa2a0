"""The running estimate of acceptance per position."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.spec_hardening.threshold.acceptance import (
    PRIOR_RATE,
    PRIOR_WEIGHT,
    Acceptance,
    expected_length,
)


def drawn(rates: tuple[float, ...], rows: int, generator: random.Random) -> list[int]:
    """Correct drafts of `rows` cycles where position i is accepted with the chance rates[i]."""

    def one() -> int:
        return next((i for i, rate in enumerate(rates) if generator.random() >= rate), len(rates))

    return [one() for _ in range(rows)]


def test_before_anything_is_seen_the_prior_holds() -> None:
    acceptance = Acceptance(3)
    assert acceptance.rates == pytest.approx((PRIOR_RATE,) * 3)
    assert acceptance.accept_length == pytest.approx(1 + 0.6 + 0.36 + 0.216)
    assert acceptance.accept_length == acceptance.prior_accept_length
    acceptance.observe([])
    assert acceptance.seen == 0


def test_counts_are_of_drafts_that_were_reached() -> None:
    acceptance = Acceptance(2, prior_weight=1e-9, window=10**12)
    acceptance.observe([0, 1, 2, 2])  # reached: 4 then 3; accepted: 3 then 2
    assert acceptance.rates == pytest.approx((3 / 4, 2 / 3))
    assert acceptance.accept_length == pytest.approx(1 + 3 / 4 + 2 / 4)  # the mean of 1, 2, 3, 3


@pytest.mark.parametrize("rows", [1, 16, 128])
@pytest.mark.parametrize("rates", [(0.9, 0.8, 0.7), (0.2, 0.1, 0.5), (1.0, 1.0, 1.0)])
def test_it_finds_the_rates_of_the_traffic(rows: int, rates: tuple[float, ...]) -> None:
    generator, acceptance = random.Random(rows), Acceptance(3)
    for _ in range(6000 // rows):
        acceptance.observe(drawn(rates, rows, generator))
    assert acceptance.accept_length == pytest.approx(expected_length(rates), rel=0.06)


def test_it_follows_traffic_that_changes() -> None:
    generator, acceptance = random.Random(1), Acceptance(3)
    for rates in ((0.9,) * 3, (0.2,) * 3):
        for _ in range(200):
            acceptance.observe(drawn(rates, 16, generator))
        assert acceptance.accept_length == pytest.approx(expected_length(rates), rel=0.08)


def test_memory_is_counted_in_cycles_whatever_the_batch() -> None:
    alone, together = Acceptance(1), Acceptance(1)
    for _ in range(10 * 128):
        alone.observe([1])
    for _ in range(10):
        together.observe([1] * 128)
    assert alone.seen == pytest.approx(together.seen, rel=0.25)


def test_fading_lets_new_results_count() -> None:
    kept, faded = Acceptance(1), Acceptance(1)
    for acceptance in (kept, faded):
        for _ in range(50):
            acceptance.observe([0] * 16)
    faded.fade(0.1)
    for acceptance in (kept, faded):
        for _ in range(8):
            acceptance.observe([1] * 16)
    assert faded.rates[0] > kept.rates[0] + 0.2


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=40))
def test_rates_are_chances_and_equal_for_equal_inputs(batches: list[list[int]]) -> None:
    first, second = Acceptance(3), Acceptance(3)
    for batch in batches:
        first.observe(batch)
        second.observe(list(reversed(batch)))  # the order of rows means nothing
    assert all(0 < rate < 1 for rate in first.rates)
    assert first.rates == second.rates
    assert 1 < first.accept_length < 4


def test_the_prior_weighs_a_few_cycles() -> None:
    acceptance = Acceptance(1)
    for _ in range(int(PRIOR_WEIGHT)):
        acceptance.observe([0])
    assert acceptance.rates[0] == pytest.approx(PRIOR_RATE / 2, rel=0.02)
