"""Which cells are measured at start, and what their times come to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.spec_hardening.threshold.cells import (
    PREFILLED,
    Lap,
    MeasureError,
    line_of,
    phases,
    plan_cells,
    spread_out,
)

GROWS = 140


def test_a_large_cache_takes_all_rows_at_the_shorter_context() -> None:
    short, long = plan_cells(128, 400_000, 32_000, True, GROWS)
    assert short == (1024, [1, 2, 4, 8, 16, 32, 64, 128])
    assert long == (8192, [1, 2, 4, 8, 16, 32, 48])


def test_a_number_of_rows_that_is_no_power_of_two_is_measured() -> None:
    assert plan_cells(48, 400_000, 32_000, True, GROWS)[0][1] == [1, 2, 4, 8, 16, 32, 48]
    assert plan_cells(1, 400_000, 32_000, True, GROWS)[0][1] == [1]


def test_a_small_cache_shortens_the_context_rather_than_leave_out_rows() -> None:
    assert plan_cells(16, 13_926, 8000, True, GROWS) == [
        (730, [1, 2, 4, 8, 16]),
        (7860, [1]),
    ]


def test_without_a_prefix_cache_little_is_prefilled() -> None:
    for context, rows in plan_cells(128, 400_000, 32_000, False, GROWS):
        assert context * rows[-1] <= PREFILLED + 128 * GROWS


@settings(deadline=None)
@given(
    st.integers(1, 512),
    st.integers(200, 10**6),
    st.integers(200, 200_000),
    st.booleans(),
    st.integers(60, 400),
)
def test_what_is_measured_fits(
    rows: int, tokens: int, longest: int, is_cached: bool, grows: int
) -> None:
    try:
        cells = plan_cells(rows, tokens, longest, is_cached, grows)
    except MeasureError:
        assert 16 + grows > min(tokens, longest)
        return
    assert [context for context, _ in cells] == sorted({context for context, _ in cells})
    for context, counts in cells:
        assert 16 <= context <= longest - grows
        assert counts == sorted(set(counts)) and counts[0] == 1 and counts[-1] <= rows
        assert counts[-1] * (context + grows) <= max(tokens, context + grows)


def test_no_room_is_an_error_with_a_remedy() -> None:
    with pytest.raises(MeasureError, match="Give a number"):
        plan_cells(8, 100, 8000, True, GROWS)


@settings(deadline=None)
@given(st.integers(1, 40))
def test_ends_are_measured_first_and_everything_once(count: int) -> None:
    counts = list(range(1, count + 1))
    order = spread_out(counts)
    assert sorted(order) == counts and order[0] == 1 and order[min(1, count - 1)] == count


def laps() -> list[Lap]:
    """Cycles of 10 s (3 draft, 4 verify, 2 draft-extend), then steps of 6 s (5 decode); the first
    of each takes longer, and every fourth step the draft catches up for 8 s."""
    made, now = [], 0.0
    for number in range(6):
        slow = 7.0 if number == 0 else 0.0
        parts = {
            "draft": (now, now + 3 + slow),
            "verify": (now + 3 + slow, now + 7 + slow),
            "draft_extend": (now + 7 + slow, now + 9 + slow),
        }
        made.append(Lap(True, now, parts))
        now += 10 + slow
    for number in range(12):
        slow = 7.0 if number == 0 else 0.0
        parts = {}
        begun = now
        if number % 4 == 3:
            parts["catch_up"] = (now, now + 8)
            now += 8
        parts["decode"] = (now, now + 5 + slow)
        made.append(Lap(False, begun, parts))
        now += 6 + slow
    return made


def seconds(begun: float, ended: float) -> float:
    return ended - begun


def test_phases_are_the_middle_of_what_was_timed() -> None:
    found = phases(laps(), seconds, 1, 4)
    assert found == {
        "draft": 3.0,
        "verify": 4.0,
        "draft_extend": 2.0,
        "cycle_rest": 1.0,
        "decode": 5.0,
        "decode_rest": 1.0 + 8 / 4,  # what it owes the draft is part of a step
        "owed": 8 / 4,
    }
    line = line_of(100, {8: found, 1: found})
    assert line.rows == (1, 8) and line.seconds["decode"] == (5.0, 5.0)
    assert line.owed == (2.0, 2.0) and "owed" not in line.seconds


def test_a_phase_that_never_ran_is_an_error() -> None:
    kept = laps()
    for lap in kept:
        lap.parts.pop("draft", None)
    with pytest.raises(MeasureError, match="no draft ran"):
        phases(kept, seconds, 1, 4)
