"""Unit tests for penalties in plain decoding with overlap scheduling: no server, no model loading."""

import unittest
from array import array
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers import schedule_batch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.runtime_context import get_context
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_VOCABULARY, _PROMPT = 16, [2, 3, 4]


class _Request:
    """What a step reads of a request whose first token the host has not seen yet."""

    retraction_count = 0
    tokenizer = None
    eos_token_ids = {1}

    def __init__(self, **asked):
        self.sampling_params = SamplingParams(max_new_tokens=99, **asked)
        self.origin_input_ids = array("q", _PROMPT)
        self.output_ids = array("q")
        self.kv = SimpleNamespace(kv_committed_len=len(_PROMPT) + 1)


class _Prepared(Exception):
    """Ends the preparation of a step: what follows is not the subject."""


class TestPenaltiesWithOverlap(CustomTestCase):
    def _fed(self, overlap: bool, mixed: bool = False) -> int:
        """How often the penalizers are fed when a decode step is prepared."""
        batch = MagicMock(
            enable_overlap=overlap, reqs=[MagicMock(beam_group=None)], beam_tail=None
        )
        batch.spec_algorithm.is_none.return_value = True
        batch.model_config.is_encoder_decoder = False
        batch.sampling_info.penalizer_orchestrator.is_required = True
        with (
            get_context().override_server_args(enable_mixed_chunk=mixed),
            patch.object(schedule_batch, "alloc_for_decode", side_effect=_Prepared),
            self.assertRaises(_Prepared),
        ):
            schedule_batch.ScheduleBatch.prepare_for_decode(batch)
        return batch.cumulate_penalty_output_tokens.call_count

    def test_the_penalizers_do_not_get_a_token_that_is_one_step_old(self):
        self.assertEqual(self._fed(overlap=True), 0)

    def test_elsewhere_they_are_fed_as_before(self):
        self.assertEqual(self._fed(overlap=False), 1)
        self.assertEqual(self._fed(overlap=True, mixed=True), 1)

    def test_the_step_counts_the_token_it_begins_with(self):
        info = SamplingBatchInfo(
            temperatures=torch.ones(1, 1),
            top_ps=torch.ones(1),
            top_ks=torch.ones(1, dtype=torch.int32),
            min_ps=torch.zeros(1),
            is_all_greedy=True,
            is_any_greedy=True,
            need_top_p_sampling=False,
            need_top_k_sampling=False,
            need_min_p_sampling=False,
            vocab_size=_VOCABULARY,
            device="cpu",
        )
        info.penalizer_orchestrator = MagicMock(is_required=False)
        info.penalties_on_device = True
        req = _Request(frequency_penalty=1.0)
        batch = MagicMock(
            reqs=[req], sampling_info=info, input_ids=torch.tensor([5]), device="cpu"
        )
        batch.spec_algorithm.is_none.return_value = True
        batch.forward_mode.is_decode.return_value = True
        logits = torch.zeros(1, _VOCABULARY)
        with Scheduler._forward_isolation(SimpleNamespace(), batch, overlap=False):
            batch.sampling_info._apply_pre_grammar_logits_transforms(logits)
        expected = torch.zeros(1, _VOCABULARY)
        expected[0, 5] = -1.0
        self.assertEqual(logits.tolist(), expected.tolist())


if __name__ == "__main__":
    unittest.main()
