"""Two answers that part are held against a prefill, whichever of the two it agrees with."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_spec.smoke.target import Generated, Settings
from sglang_spec.smoke.teacher import Unequal, parted

IDS = [1, 2]


class Prefill:
    """A server whose prefill finds `top` likeliest at each place, `gap` before the second."""

    settings = Settings()

    def __init__(self, top: list[int], second: int, gap: float) -> None:
        self.top, self.second, self.gap = top, second, gap

    def generate(self, ids: list[int], *_: Any, **__: Any) -> Generated:
        rows = [
            [
                [-1.0, token, None],
                [-1.0 - self.gap, self.second, None],
                [-9.0, 0, None],
                [-9.1, 1, None],
            ]
            for token in self.top[: len(ids) - len(IDS)]
        ]
        return Generated((1,), "", 0, (), {"input_top_logprobs": rows})


@pytest.mark.parametrize("mine_is_top", [True, False])
@pytest.mark.parametrize(("gap", "tie"), [(0.1, True), (3.0, False)])
def test_a_tie_is_one_from_either_side(mine_is_top: bool, gap: float, tie: bool) -> None:
    prefill: Any = Prefill([7, 8, 9], 5, gap)
    top, other = [7, 8, 9], [7, 5, 9]
    mine, theirs = (top, other) if mine_is_top else (other, top)
    found = parted(prefill, 3, IDS, mine, theirs)
    assert found is not None
    assert (found.prompt, found.position, found.got, found.wanted) == (3, 1, mine[1], theirs[1])
    assert found.gap == pytest.approx(gap) and found.tie is tie


def test_equal_answers_do_not_part_and_one_that_ends_early_is_no_tie() -> None:
    prefill: Any = Prefill([7, 8], 5, 0.1)
    assert parted(prefill, 0, IDS, [7, 8], [7, 8]) is None
    assert parted(prefill, 0, IDS, [7], [7, 8]) == Unequal(0, 1, None, 8, None, False)
    assert parted(prefill, 0, IDS, [7, 8], [7]) == Unequal(0, 1, 8, None, None, False)


def test_two_tokens_that_the_prefill_has_neither_of_are_no_tie() -> None:
    prefill: Any = Prefill([7, 8], 5, 0.1)
    found = parted(prefill, 0, IDS, [7, 3], [7, 4])
    assert found is not None and not found.tie
