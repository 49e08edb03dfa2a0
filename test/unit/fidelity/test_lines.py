"""Lines that follow each other are looked at in place, others are not: it makes no difference."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kit.launches import Launches
from sglang.srt.spec_hardening.fidelity.lines import Lines
from sglang.srt.spec_hardening.fidelity.penalties import _by_sign, _scaling

DEVICE = torch.device("cpu")
FLOATS = (0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("indices", [[2], [1, 2, 3], [3, 1, 2], [0, 2]], ids=str)
def test_every_look_is_that_of_a_loop(indices: list[int]) -> None:
    lines, count = Lines(indices, DEVICE), len(indices)
    dice = torch.Generator().manual_seed(3)
    values = torch.randint(0, 99, (5, 7), dtype=torch.int32, generator=dice)
    columns = torch.randint(0, 7, (count, 4), generator=dice)
    assert lines.of(values).tolist() == [values[line].tolist() for line in indices]
    wanted = [[int(values[line, at]) for at in columns[row]] for row, line in enumerate(indices)]
    assert lines.gather(values, columns).tolist() == wanted

    more = torch.randint(0, 9, (count, 4), dtype=torch.int32, generator=dice)
    counted = values.clone()
    lines.count(counted, columns, more)
    for row, line in enumerate(indices):
        for at, by in zip(columns[row], more[row], strict=True):
            values[line, at] += by
    assert counted.equal(values), "also where a column is named twice"

    places = torch.stack([torch.randperm(7, generator=dice)[:3] for _ in indices])
    lines.put(counted, places, more[:, :3])
    for row, line in enumerate(indices):
        values[line, places[row]] = more[row, :3]
    assert counted.equal(values)

    for which in (counted, counted[:, 0].clone()):
        before = which.clone()
        lines.add(which, more[:, 0])
        for row, line in enumerate(indices):
            before[line] += more[row, 0]
        assert which.equal(before)


def test_lines_that_follow_each_other_are_read_without_a_launch() -> None:
    values = torch.zeros(5, 7)
    with Launches() as seen:
        Lines([1, 2, 3], DEVICE).of(values)
    together = seen.total
    with Launches() as seen:
        Lines([3, 1], DEVICE).of(values)
    assert seen.total == together + 1


@given(
    st.lists(st.one_of(st.floats(width=32), st.sampled_from(FLOATS)), min_size=1, max_size=20),
    st.integers(0, 2**32),
    st.sampled_from([(1.0, 2.0), (0.01, 1.0), (0.01, 2.0), (0.0, 1.0)]),
)
def test_scaling_is_to_the_bit_what_the_sign_of_the_logit_says(
    logits: list[float], seed: int, within: tuple[float, float]
) -> None:
    """A cheaper form is taken where all rates are on one side of 1."""
    dice = random.Random(seed)
    given = [dice.choice((*within, dice.uniform(*within))) for _ in logits]
    rates, values = torch.tensor(given), torch.tensor(logits)
    scaled = _scaling(given)
    multiplied, divided = values * rates, values / rates
    found, wanted = scaled(values, multiplied, divided), _by_sign(values, multiplied, divided)
    known = ~wanted.isnan()
    assert found.isnan().equal(~known)
    assert found[known].view(torch.int32).equal(wanted[known].view(torch.int32))
