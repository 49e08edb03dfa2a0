"""Attention of the tiny pair: each query head carries one bit from one exact distance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_spec.models.tiny import rotary
from sglang_spec.models.tiny.plan import BITS

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Read:
    """What one query head does.

    Attributes:
        distance: positions back; 0 is the own row.
        values: input dimensions of the bit's two values, as the key-value head stores them.
        goal: residual dimensions of the read bit: value 0, value 1, idle.
    """

    distance: int
    values: tuple[int, int]
    goal: tuple[int, int, int]


def attention(
    reads: Sequence[Sequence[Read]], *, hidden: int, width: int, one: int, first: int, seed: str
) -> dict[str, torch.Tensor]:
    """The four projections, by Hugging Face name without prefix.

    Args:
        reads: for each of the eight key-value heads, the reads of its query heads.
        hidden: residual dimensions.
        width: input dimensions of q, k and v (the draft's is twice `hidden`).
        one, first: input dimensions that are 1 everywhere, and 1 in the BOS row only.
        seed: decides which of the 64 dimensions of a value hold something.
    """
    import torch

    size, group = rotary.HEAD_DIM, len(reads[0])
    q = torch.zeros(BITS * group * size, width)
    k, v = torch.zeros(BITS * size, width), torch.zeros(BITS * size, width)
    o = torch.zeros(hidden, BITS * group * size)
    ordinary, bos = torch.tensor(rotary.key()), torch.tensor(rotary.first_key())
    rng = random.Random(seed)
    for kv, group_reads in enumerate(reads):
        rows = slice(kv * size, (kv + 1) * size)
        k[rows, one] = ordinary
        k[rows, first] = bos - ordinary
        inputs = sorted({one}.union(*(read.values for read in group_reads)))
        slots = dict(zip(inputs, rng.sample(range(size), len(inputs)), strict=True))
        for source, slot in slots.items():
            v[kv * size + slot, source] = 1.0
        for place, read in enumerate(group_reads):
            start = (kv * group + place) * size
            q[start : start + size, one] = torch.tensor(rotary.query(read.distance))
            zero, set_, idle = read.goal
            o[zero, start + slots[read.values[0]]] = 1.0
            o[set_, start + slots[read.values[1]]] = 1.0
            # A row that is read, whatever it holds, ends the idle state; a hole does not.
            o[idle, start + slots[one]] = -1.0
    return {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": o}
