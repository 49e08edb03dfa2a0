"""What a step without speculation leaves comes back in the order of its positions."""

from __future__ import annotations

import torch
from sglang.srt.spec_hardening.threshold.ring import Ring


def entry(row: int, number: int) -> torch.Tensor:
    return torch.full((5,), 100.0 * row + number)


def test_entries_come_back_by_row_and_in_order() -> None:
    ring = Ring(rows=6, capacity=4, width=5, dtype=torch.bfloat16, device="cpu")
    counts = {1: 0, 3: 0, 4: 0}
    for step, rows in enumerate([[3], [4, 3], [1, 3, 4]]):
        hidden = torch.stack([entry(row, counts[row]) for row in rows])
        tokens = torch.tensor([10 * row + step for row in rows], dtype=torch.int32)
        ring.store(rows, [counts[row] for row in rows], hidden, tokens)
        hidden.zero_()  # a CUDA graph writes over what it gave
        for row in rows:
            counts[row] += 1
    assert counts == {1: 1, 3: 3, 4: 2}
    hidden, tokens = ring.take([4, 3], 3)
    assert hidden.shape == (6, 5)
    assert tokens[:2].tolist() == [41, 42]  # the third entry of row 4 is nobody's
    assert tokens[3:].tolist() == [30, 31, 32]
    expected = [entry(4, 0), entry(4, 1), entry(3, 0), entry(3, 1), entry(3, 2)]
    torch.testing.assert_close(
        hidden[[0, 1, 3, 4, 5]], torch.stack(expected).to(torch.bfloat16), rtol=0, atol=0
    )


def test_a_row_begins_anew() -> None:
    ring = Ring(rows=3, capacity=2, width=5, dtype=torch.float32, device="cpu")
    ring.store([2], [0], entry(2, 7)[None], torch.tensor([70]))
    ring.store([2], [0], entry(2, 8)[None], torch.tensor([80]))
    hidden, tokens = ring.take([2], 1)
    assert tokens.tolist() == [80] and hidden[0, 0] == 208
    assert ring.nbytes == 3 * 2 * (5 * 4 + 8)
