"""Unit tests for the mask of a request without a grammar: no server, no model loading."""

import unittest

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.constrained.xgrammar_backend import (
    XGrammarGrammar,
    XGrammarGrammarBackend,
)

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_TOKENS = 70  # three words of a mask, the last one in part


def _masked(apply, row: int, dtype: torch.dtype) -> torch.Tensor:
    """Two rows of logits after a mask that lets the tokens 3 and 64 through in one of them."""
    mask = XGrammarGrammarBackend.allocate_vocab_mask(_TOKENS, 2, "cpu")
    XGrammarGrammarBackend.set_token_filter(mask, [3, 64], row, is_allowed=True)
    logits = torch.arange(2.0 * _TOKENS, dtype=dtype).reshape(2, _TOKENS)
    apply(logits=logits, vocab_mask=mask)
    return logits


class TestMaskWithoutGrammar(CustomTestCase):
    def test_the_mask_of_the_backend_is_that_of_its_grammars(self):
        for dtype in (torch.float32, torch.bfloat16):
            for row in (0, 1):
                logits = _masked(XGrammarGrammarBackend.apply_vocab_mask, row, dtype)
                self.assertEqual(
                    logits[row].isfinite().nonzero().flatten().tolist(), [3, 64]
                )
                self.assertTrue(logits[1 - row].isfinite().all())
                grammar = XGrammarGrammar(None, _TOKENS, None, None)
                self.assertTrue(
                    torch.equal(logits, _masked(grammar.apply_vocab_mask, row, dtype))
                )

    def test_a_mask_that_allows_all_changes_nothing(self):
        mask = XGrammarGrammarBackend.allocate_vocab_mask(_TOKENS, 1, "cpu")
        logits = torch.arange(float(_TOKENS)).reshape(1, _TOKENS)
        XGrammarGrammarBackend.apply_vocab_mask(logits=logits, vocab_mask=mask)
        self.assertEqual(logits.tolist(), [list(range(_TOKENS))])


if __name__ == "__main__":
    unittest.main()
