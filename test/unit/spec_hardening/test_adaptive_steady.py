"""Adaptive step counts do not thrash; upstream's own policy, driven as its worker drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams


def drive(
    sizes: Iterable[int], accepted: Callable[[int], int], lag: int = 1, config: Path | None = None
) -> list[int]:
    """The steps of each batch; its result comes back `lag` launches later.

    Args:
        sizes: rows of each batch.
        accepted: how many of a batch's steps are right for each of its rows.
    """
    policy = AdaptiveSpeculativeParams(3, str(config) if config else None)
    used: list[int] = []
    out: list[tuple[int, int]] = []
    for size in sizes:
        used.append(policy.get_steps_for_batch(size))
        out.append((size, used[-1]))
        if len(out) > lag:
            before, steps = out.pop(0)
            policy.on_verify_complete([min(accepted(steps), steps)] * before, before)
    return used


def switches(used: list[int]) -> int:
    return sum(one != other for one, other in pairwise(used))


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("edge", [(63, 64), (31, 32), (7, 8)])
def test_alternating_at_the_edge_of_a_slot(edge: tuple[int, int], lag: int) -> None:
    """Upstream changes the steps at all but one of 2,000 batches at 63 and 64 rows."""
    used = drive([*edge] * 1000, lambda steps: steps, lag)
    assert switches(used) <= 20


@pytest.mark.parametrize("rows", [16, 40])
def test_probing_backs_off_where_drafts_fail(rows: int) -> None:
    """Upstream: 397 changes in 2,000 batches, and half of the batches draft for nothing."""
    used = drive([rows] * 2000, lambda steps: 0)
    assert switches(used) <= 30
    assert sum(steps > 0 for steps in used) <= 200


def becoming_good(count: int, bad: int) -> tuple[Iterable[int], Callable[[int], int]]:
    """Batches of which the first `bad` accept nothing and the others everything."""
    launched = [0]

    def sizes() -> Iterable[int]:
        for _ in range(count):
            launched[0] += 1
            yield 16

    return sizes(), lambda steps: steps if launched[0] > bad else 0


def test_probing_goes_on_and_finds_drafts_that_are_good_again() -> None:
    used = drive(*becoming_good(4000, 2000))
    assert max(used[1500:2000]) <= 1
    assert used[-1] == 3


def test_a_result_of_other_steps_is_no_evidence(tmp_path: Path) -> None:
    """The first result after a change comes from before it, where nothing was drafted."""
    config = tmp_path / "adaptive.json"
    config.write_text(
        '{"1": {"candidate_steps": [0, 3]}, "ema_alpha": 1.0, "update_interval": 1,'
        ' "warmup_batches": 0}'
    )
    used = drive(*becoming_good(200, 20), lag=1, config=config)
    assert min(used[:20]) == 0
    assert used[100:] == [3] * 100
