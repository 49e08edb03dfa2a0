"""A seeded draw depends on seed, position and the request's own filters."""

from __future__ import annotations

import torch
from kit import homogeneity
from sglang.srt.layers.sampler import (
    sampling_from_probs_torch,
    top_k_top_p_min_p_sampling_from_probs_torch,
)

ROWS, VOCABULARY = 4096, 24
PROBS = torch.rand(1, VOCABULARY, generator=torch.Generator().manual_seed(3)).square()
PROBS = (PROBS / PROBS.sum()).expand(ROWS, -1)
SEEDS = torch.full((ROWS,), 11)
POSITIONS = torch.arange(ROWS)


def filtered(top_k: int, top_p: float = 1.0, min_p: float = 0.0) -> torch.Tensor:
    """Drawn where some request of the batch has a filter."""
    return top_k_top_p_min_p_sampling_from_probs_torch(
        PROBS.clone(),
        torch.full((ROWS,), top_k),
        torch.full((ROWS,), top_p),
        torch.full((ROWS,), min_p),
        min_p > 0,
        SEEDS,
        POSITIONS,
    )


def test_filters_of_others_do_not_change_a_seeded_draw() -> None:
    alone = sampling_from_probs_torch(PROBS, SEEDS, POSITIONS)
    assert torch.equal(filtered(VOCABULARY), alone)
    assert len(set(alone.tolist())) > 12


def test_a_draw_that_a_filter_leaves_is_kept() -> None:
    """So a filter changes no more than it has to."""
    kept = set(PROBS[0].topk(5).indices.tolist())
    free, some = filtered(VOCABULARY).tolist(), filtered(5).tolist()
    assert set(some) == kept
    assert all(one == other for one, other in zip(free, some, strict=True) if one in kept)


def test_filtered_draws_have_their_distribution() -> None:
    best = PROBS[0].topk(5)
    law = dict(zip(best.indices.tolist(), (best.values / best.values.sum()).tolist(), strict=True))
    assert homogeneity.against(filtered(5).tolist(), law) > homogeneity.SIGNIFICANCE
    wrong = dict(zip(law, [*list(law.values())[1:], next(iter(law.values()))], strict=True))
    assert homogeneity.against(filtered(5).tolist(), wrong) < homogeneity.SIGNIFICANCE
