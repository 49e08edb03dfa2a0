"""Random inputs in the shapes of drafting and paged attention, and how results compare."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import settings
from hypothesis import strategies as st
from unit.sgl_kernel import reference


def quick(examples: int) -> settings:
    """Settings of a property test: the same examples on every run, no time limit for one."""
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Draft(NamedTuple):
    """What drafting hands to the tree builder."""

    parent_list: torch.Tensor  # int64 [bs, groups]
    selected: torch.Tensor  # int64 [bs, n - 1]
    topk: int
    steps: int
    n: int

    @property
    def batch(self) -> int:
        return self.selected.shape[0]


def draft(seed: int, batch: int, topk: int, steps: int, n: int, ties: bool = False) -> Draft:
    """Beam drafting with random probabilities.

    Step 1 proposes topk tokens; every later step proposes topk children of each of the topk beams
    and keeps the best topk as beams. The n - 1 best proposals of all steps are selected. With
    `ties`, probabilities are powers of two, one included, so that a child can score as its parent
    does and be selected without it.
    """
    rng = generator(seed)

    def probabilities(*shape: int) -> torch.Tensor:
        if ties:
            return 0.5 ** torch.randint(0, 2, shape, generator=rng).float()
        return torch.rand(shape, generator=rng)

    beams = probabilities(batch, topk)
    scores = [beams]
    parents = [torch.arange(-1, topk).expand(batch, -1)]
    first = topk
    for _ in range(1, steps):
        grown = (beams.unsqueeze(2) * probabilities(batch, topk, topk)).flatten(1)
        beams, kept = grown.topk(topk, dim=1)
        scores.append(grown)
        parents.append(kept + first)
        first += topk * topk
    selected = torch.cat(scores, 1).topk(n - 1, dim=1).indices.sort(dim=1).values
    parent_list = (
        torch.cat(parents[:-1], 1) if steps > 1 else torch.empty(batch, 0, dtype=torch.int64)
    )
    return Draft(parent_list, selected, topk, steps, n)


@st.composite
def drafts(draw: st.DrawFn, max_nodes: int = 64) -> Draft:
    topk = draw(st.integers(1, 8))
    steps = draw(st.integers(1, 6))
    proposals = topk + (steps - 1) * topk * topk
    return draft(
        draw(st.integers(0, 2**31)),
        draw(st.integers(1, 8)),
        topk,
        steps,
        draw(st.integers(2, min(max_nodes, proposals + 1))),
        draw(st.booleans()),
    )


def random_tree(rng: torch.Generator, n: int) -> torch.Tensor:
    """The visibility of a random tree whose parents come before their children: bool [n, n]."""
    visible = torch.eye(n, dtype=torch.bool)
    for i in range(1, n):
        visible[i] |= visible[int(torch.randint(i, (1,), generator=rng))]
    return visible


class Cache(NamedTuple):
    """A scattered paged cache. Every row that belongs to no request is NaN."""

    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor  # int32 [rows, width], stale cells pointing at NaN rows
    rows: torch.Tensor  # int64 [bs]
    lengths: list[int]

    def slots(self, request: int) -> torch.Tensor:
        return self.table[self.rows[request], : self.lengths[request]].long()


def cache(
    rng: torch.Generator,
    lengths: Sequence[int],
    kv_heads: int,
    dim: int,
    v_dim: int,
    dtype: torch.dtype,
) -> Cache:
    used = sum(lengths)
    spare = 7
    k = torch.randn(used + spare, kv_heads, dim, generator=rng).to(dtype)
    v = torch.randn(used + spare, kv_heads, v_dim, generator=rng).to(dtype)
    order = torch.randperm(used + spare - 1, generator=rng) + 1  # slot 0 is nobody's
    k[order[used:]] = v[order[used:]] = k[0] = v[0] = float("nan")
    rows = torch.randperm(len(lengths) + 2, generator=rng)[: len(lengths)]
    table = torch.full((len(lengths) + 2, max(lengths) + 9), int(order[-1]), dtype=torch.int32)
    at = 0
    for row, length in zip(rows.tolist(), lengths, strict=True):
        table[row, :length] = order[at : at + length].int()
        at += length
    return Cache(k, v, table, rows, list(lengths))


# The fused kernel's exponential is good to 20 units in the last place of float32.
EXP_ERROR = 20 * 2.0**-24


def tolerance(expected: torch.Tensor, plain: torch.Tensor, values: torch.Tensor) -> float:
    """How far a result may be from the float64 reference.

    `plain` is the same attention in single steps of the tested dtype, each rounded; its own error
    is what that dtype costs. Twice that is granted; one rounding of the largest result, for cases
    so small that the plain form happens to be exact; and what the exponential of the fused kernel
    can cost, once in the weighted sum and once in the sum that divides it.
    """
    error = float((plain.double() - expected).abs().max())
    rounding = torch.finfo(plain.dtype).eps * float(expected.abs().max())
    return 2 * error + rounding + 2 * EXP_ERROR * float(values.abs().max())


def plain_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`reference.attention` as single steps in the dtype of q."""
    group = q.shape[1] // keys.shape[1]
    k = keys.repeat_interleave(group, 1).permute(1, 2, 0)
    v = values.repeat_interleave(group, 1).transpose(0, 1)
    scores = q.transpose(0, 1) @ k * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.to(q.dtype).view(-1, 1, 1).expand(-1, q.shape[0], 1)
        return (torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ v).transpose(0, 1)
    return (scores.softmax(-1) @ v).transpose(0, 1)


def disagreement(
    out: torch.Tensor, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, **how: Any
) -> float:
    """Largest error of one request's attention, in units of what is allowed: above 1 is wrong."""
    expected = reference.attention(q, keys, values, **how)
    allowed = tolerance(expected, plain_attention(q, keys, values, **how), values)
    error = (out.double() - expected).abs().max()
    return float(error) / allowed if bool(error.isfinite()) else float("inf")
