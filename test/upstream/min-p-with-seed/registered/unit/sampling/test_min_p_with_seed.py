"""Unit tests for seeded sampling with min-p: no server, no model loading."""

import unittest

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.layers.sampler import top_k_top_p_min_p_sampling_from_probs_torch

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_SHARES = torch.tensor([0.1, 0.4, 0.2, 0.3])
_ROWS = 4096
_ALL = 1 << 30  # no top-k


def _drawn(min_p: float, first_seed: int = 0) -> torch.Tensor:
    """One token of each of many requests, which differ in their seeds."""
    return top_k_top_p_min_p_sampling_from_probs_torch(
        _SHARES.repeat(_ROWS, 1),
        torch.full((_ROWS,), _ALL),
        torch.ones(_ROWS),
        torch.full((_ROWS,), min_p),
        min_p > 0,
        torch.arange(first_seed, first_seed + _ROWS),
        torch.full((_ROWS,), 7),
    )


class TestMinPWithSeed(CustomTestCase):
    def test_tokens_below_the_share_of_the_best_are_left_out(self):
        self.assertEqual(set(_drawn(min_p=0.6).tolist()), {1, 3})

    def test_the_others_keep_their_proportions(self):
        """Weights that do not sum to 1 draw as those that do: a common factor is no matter."""
        counts = torch.bincount(_drawn(min_p=0.6), minlength=4) / _ROWS
        # Four standard deviations.
        for token, wanted in ((1, 4 / 7), (3, 3 / 7)):
            delta = 4 * (wanted * (1 - wanted) / _ROWS) ** 0.5
            self.assertAlmostEqual(counts[token].item(), wanted, delta=delta)

    def test_the_same_seed_gives_the_same_token(self):
        one, other = _drawn(min_p=0.6), _drawn(min_p=0.6, first_seed=1)
        self.assertEqual(one.tolist(), _drawn(min_p=0.6).tolist())
        self.assertEqual(one[1:].tolist(), other[:-1].tolist())
        self.assertNotEqual(one.tolist(), other.tolist())

    def test_a_min_p_that_leaves_all_changes_no_token(self):
        self.assertEqual(_drawn(min_p=0.01).tolist(), _drawn(min_p=0.0).tolist())


if __name__ == "__main__":
    unittest.main()
