"""The fixed threshold is a pure function of row counts."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from sglang.srt.spec_hardening.threshold import policy
from sglang.srt.spec_hardening.threshold.policy import Bounds, Threshold


def decisions(bounds: Bounds, rows: list[int]) -> list[bool]:
    threshold = Threshold(bounds)
    return [threshold.decide(count) for count in rows]


def switches(on: list[bool]) -> int:
    return sum(before != after for before, after in zip([True, *on], on, strict=False))


def test_off_from_the_upper_bound_and_on_again_at_the_lower() -> None:
    rows = [1, 63, 64, 63, 49, 48, 63, 64]
    assert decisions(Bounds(64, 48, 1), rows) == [
        True,
        True,
        False,
        False,
        False,
        True,
        True,
        False,
    ]


def test_the_first_batch_may_be_off_at_once() -> None:
    assert decisions(Bounds(8, 6, 100), [8]) == [False]


def test_a_change_waits_for_the_dwell() -> None:
    rows = [8, *[1] * 6, *[8] * 6]
    on = decisions(Bounds(8, 6, 4), rows)
    assert on == [False] * 4 + [True] * 4 + [False] * 5


@pytest.mark.parametrize("bounds", [Bounds(64, 48, 1), Bounds(64, 48, 32), Bounds(64, 63, 100)])
def test_alternating_at_the_edge_is_no_thrash(bounds: Bounds) -> None:
    assert switches(decisions(bounds, [63, 64] * 1000)) <= 20


def test_never_on_again_where_the_lower_bound_is_zero() -> None:
    assert decisions(Bounds(1, 0, 1), [1, 5, 1, 1]) == [False] * 4


@pytest.mark.parametrize("seed", range(50))
def test_random_rows_keep_the_promises(seed: int) -> None:
    dice = random.Random(seed)
    leave_at = dice.randrange(1, 40)
    bounds = Bounds(leave_at, dice.randrange(leave_at), dice.randrange(1, 12))
    rows = [dice.randrange(1, 50) for _ in range(500)]
    on = decisions(bounds, rows)
    assert on == decisions(bounds, rows)
    changes = [i for i in range(1, len(on)) if on[i] != on[i - 1]]
    for one, next_one in pairwise(changes):
        assert next_one - one >= bounds.dwell
    for i in changes:
        assert rows[i] <= bounds.enter_at if on[i] else rows[i] >= bounds.leave_at
    before, stayed = True, bounds.dwell
    for count, is_on in zip(rows, on, strict=True):
        if stayed < bounds.dwell:
            assert is_on == before
        else:
            assert is_on == (count < leave_at if before else count <= bounds.enter_at)
        stayed = stayed + 1 if is_on == before else 1
        before = is_on


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([7], "7 rows: fewer than 8"),
        ([9], "9 rows: 8 or more"),
        ([9, *[7] * 9], "7 rows: more than 6, where speculation returns"),
        ([9, 2], "2 rows: waits until 5 batches after the last change"),
    ],
)
def test_the_reason_says_why(rows: list[int], reason: str) -> None:
    threshold = Threshold(Bounds(8, 6, 5))
    assert threshold.reason == "no batch yet"
    for count in rows:
        threshold.decide(count)
    assert threshold.reason == reason


@pytest.mark.parametrize("numbers", [(8, 8, 1), (8, 9, 1), (8, -1, 1), (0, 0, 1), (8, 4, 0)])
def test_bounds_at_odds_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must hold"):
        Bounds(*numbers)


def test_it_imports_without_torch_and_without_the_engine() -> None:
    folder = Path(policy.__file__).parents[1]
    program = (
        f"import sys; sys.modules['torch'] = sys.modules['sglang'] = None\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "from threshold import make_decider, pending, settings"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
