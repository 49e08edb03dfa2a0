"""Unit tests for seeded draws beside requests with filters: no server, no model loading."""

import unittest
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.layers.sampler import (
    sampling_from_probs_torch,
    top_k_top_p_min_p_sampling_from_probs_torch,
)

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_SHARES = torch.tensor([0.02, 0.3, 0.08, 0.2, 0.05, 0.15, 0.01, 0.19])
_BEST = [1, 3, 5, 7]
_ROWS, _SEED = 4096, 11
_ALL = 1 << 30  # no top-k


def _of_one_request() -> tuple:
    """What one request with a seed is drawn from at each of many positions."""
    return (
        _SHARES.repeat(_ROWS, 1),
        torch.full((_ROWS,), _SEED),
        torch.arange(_ROWS),
    )


def _alone() -> torch.Tensor:
    """Its tokens in batches where no request has a filter."""
    return sampling_from_probs_torch(*_of_one_request())


def _beside(top_k: int = _ALL, greedy: bool = False) -> torch.Tensor:
    """Its tokens in batches that are sorted for a filter.

    Args:
        top_k: its own.
        greedy: whether a second request of the batch has a top-k of 1.
    """
    probs, seeds, positions = _of_one_request()
    top_ks = torch.full((_ROWS,), top_k)
    if greedy:
        probs, seeds, positions = (
            torch.cat([one, one]) for one in (probs, seeds, positions)
        )
        top_ks = torch.cat([top_ks, torch.ones_like(top_ks)])
    return top_k_top_p_min_p_sampling_from_probs_torch(
        probs,
        top_ks,
        torch.ones(len(probs)),
        torch.zeros(len(probs)),
        False,
        seeds,
        positions,
    )


class TestSeededDraws(CustomTestCase):
    def test_a_greedy_neighbour_changes_no_token(self):
        tokens = _beside(greedy=True)
        # Counted, as a readable difference of so many tokens takes minutes.
        self.assertEqual((tokens[:_ROWS] != _alone()).sum().item(), 0)
        self.assertEqual(set(tokens[_ROWS:].tolist()), {1})

    def test_a_drawn_token_that_a_filter_leaves_is_kept(self):
        free, some = _alone(), _beside(top_k=len(_BEST))
        self.assertEqual(set(some.tolist()), set(_BEST))
        kept = torch.isin(free, torch.tensor(_BEST))
        self.assertGreater(kept.sum().item(), _ROWS // 2)
        self.assertEqual((free[kept] != some[kept]).sum().item(), 0)

    def test_filtered_tokens_keep_their_proportions(self):
        tokens = _beside(top_k=len(_BEST))
        counts = torch.bincount(tokens, minlength=len(_SHARES)) / _ROWS
        for token in _BEST:
            wanted = (_SHARES[token] / _SHARES[_BEST].sum()).item()
            # Four standard deviations.
            delta = 4 * (wanted * (1 - wanted) / _ROWS) ** 0.5
            self.assertAlmostEqual(counts[token].item(), wanted, delta=delta)

    def test_the_logarithm_has_the_precision_of_the_noise(self):
        """Else a batch with a filter may draw otherwise where two tokens are close."""
        with patch(
            "sglang.srt.layers.sampler.multinomial_with_seed",
            return_value=torch.zeros(_ROWS, 1, dtype=torch.int64),
        ) as drawn:
            _alone()
            _beside()
        dtypes = {call.args[0].dtype for call in drawn.call_args_list}
        self.assertEqual(dtypes, {torch.float64})


if __name__ == "__main__":
    unittest.main()
