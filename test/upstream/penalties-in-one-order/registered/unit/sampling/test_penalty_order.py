"""Unit tests for the order of penalties: no server, no model loading."""

import unittest
from itertools import permutations
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

_VOCABULARY = 16
_PENALIZERS = (
    penaltylib.BatchedFrequencyPenalizer,
    penaltylib.BatchedMinNewTokensPenalizer,
    penaltylib.BatchedPresencePenalizer,
    penaltylib.BatchedRepetitionPenalizer,
)


class TestPenaltyOrder(CustomTestCase):
    def test_every_order_of_a_set_gives_the_same_logits(self):
        """A set of classes is iterated by their addresses, so a process may have any of these."""
        asked = SamplingParams(
            frequency_penalty=0.5, presence_penalty=0.25, repetition_penalty=2.0
        )
        req = SimpleNamespace(
            sampling_params=asked,
            eos_token_ids={1},
            tokenizer=SimpleNamespace(additional_stop_token_ids=None, eos_token_id=1),
        )
        batch = MagicMock(device="cpu", reqs=[req])
        found = []
        for order in permutations(_PENALIZERS):
            orchestrator = penaltylib.BatchedPenalizerOrchestrator(
                _VOCABULARY, batch, order
            )
            orchestrator.cumulate_output_tokens(torch.tensor([5]))
            logits = torch.ones(1, _VOCABULARY)
            orchestrator.apply(logits)
            found.append(float(logits[0, 5]))
        self.assertEqual(found, [(1 - 0.5 - 0.25) / 2] * len(found))


if __name__ == "__main__":
    unittest.main()
