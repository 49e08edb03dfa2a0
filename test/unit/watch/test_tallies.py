"""What ranks accepted, compared through the record of the launch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_spec.hardening.record import Board, Rank
from sglang_spec.hardening.watch.tallies import EVERY, SLOTS, Tally, sums, unequal


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rank]]:
    monkeypatch.setenv("SGLANG_SPEC_RECORD", "")
    board = Board.create()
    yield [board.claim(f"rank TP{number}") for number in range(3)]


def fill(tally: Tally, batches: int, correct: int = 2) -> None:
    for _ in range(batches):
        tally.add([correct, 1])


def test_equal_ranks_are_equal_also_when_one_is_ahead(ranks: list[Rank]) -> None:
    for number, rank in enumerate(ranks):
        fill(Tally(rank, 1), 10 * EVERY + number * EVERY)
    assert unequal(ranks, 1) is None


def test_the_rank_that_accepts_less_is_named_with_the_batches(ranks: list[Rank]) -> None:
    tallies = [Tally(rank, 1) for rank in ranks]
    for tally in tallies:
        fill(tally, EVERY)
    for number, tally in enumerate(tallies):
        fill(tally, EVERY - 1)
        fill(tally, 1, correct=1 if number == 2 else 2)
    assert unequal(ranks, 1) == (
        f"in verify batches {EVERY + 1} to {2 * EVERY} rank TP0 accepted {3 * EVERY} drafts and "
        f"rank TP2 {3 * EVERY - 1}"
    )


def test_a_difference_that_has_passed_is_forgotten(ranks: list[Rank]) -> None:
    tallies = [Tally(rank, 1) for rank in ranks[:2]]
    fill(tallies[0], EVERY, 0)
    fill(tallies[1], EVERY, 1)
    assert unequal(ranks, 1)
    for tally in tallies:
        fill(tally, EVERY * SLOTS)
    assert unequal(ranks, 1) is None


def test_ranks_of_other_batches_are_not_compared(ranks: list[Rank]) -> None:
    for number, rank in enumerate(ranks):
        fill(Tally(rank, 1 + number), 2 * EVERY, number)
    assert all(unequal(ranks, 1 + number) is None for number in range(3))


def test_a_page_nobody_wrote_is_in_no_group(ranks: list[Rank]) -> None:
    fill(Tally(ranks[0], 1), EVERY)
    assert [rank.group for rank in ranks] == [1, 0, 0]
    assert unequal(ranks, 1) is None


def test_a_sum_that_is_being_written_is_left_out(ranks: list[Rank]) -> None:
    fill(Tally(ranks[0], 1), 2 * EVERY)
    assert sorted(sums(ranks[0])) == [EVERY, 2 * EVERY]
    ranks[0].tally_at[2] = 0
    assert sorted(sums(ranks[0])) == [EVERY]


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=400))
def test_sums_equal_a_recount(batches: list[list[int]]) -> None:
    page = Rank()
    tally = Tally(page, 1)
    written = [tally.add(correct) for correct in batches]
    full = len(batches) // EVERY
    assert sum(written) == full
    assert sums(page) == {
        EVERY * part: sum(sum(correct) for correct in batches[EVERY * (part - 1) : EVERY * part])
        for part in range(max(1, full - SLOTS + 1), full + 1)
    }


def test_an_alarm_is_text_in_the_page_and_is_taken_back(ranks: list[Rank]) -> None:
    ranks[0].raise_alarm("degraded: " + "ä" * 1000)
    assert ranks[0].alarm.startswith(b"degraded")
    ranks[0].raise_alarm("")
    assert ranks[0].alarm == b""
