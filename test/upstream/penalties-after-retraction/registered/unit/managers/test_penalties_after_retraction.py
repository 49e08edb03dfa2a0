"""Unit tests for penalties and logit processors of a request that is prefilled again: no server, no
model loading."""

import contextlib
import unittest
from array import array
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers import schedule_batch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_VOCABULARY, _END = 16, 1
_PROMPT = [2, 3, 4]
_PENALIZERS = {
    penaltylib.BatchedFrequencyPenalizer,
    penaltylib.BatchedMinNewTokensPenalizer,
    penaltylib.BatchedPresencePenalizer,
    penaltylib.BatchedRepetitionPenalizer,
}


def _request(output: list, asked: dict) -> MagicMock:
    """A request that has put out so much, and is to be prefilled with it."""
    ids = [*_PROMPT, *output]
    req = MagicMock(
        sampling_params=SamplingParams(max_new_tokens=99, **asked),
        origin_input_ids=array("q", _PROMPT),
        output_ids=array("q", output),
        full_untruncated_fill_ids=ids,
        prefix_len=0,
        extend_end=len(ids),
        extend_len=len(ids),
        logprob_start_len=-1,
        extend_batch_idx=0,
        input_embeds=None,
        positional_embed_overrides=None,
        multimodal_inputs=None,
        retracted_stain=bool(output),
        eos_token_ids={_END},
        tokenizer=SimpleNamespace(additional_stop_token_ids=None, eos_token_id=_END),
    )
    req.get_fill_ids.return_value = array("q", ids)
    req.kv.holds_mamba = False
    req.is_dllm.return_value = False
    return req


def _logits(orchestrator) -> torch.Tensor:
    """What penalties make of the same logits for every request."""
    logits = torch.linspace(-3, 3, _VOCABULARY).repeat(len(orchestrator.reqs()), 1)
    added = torch.zeros_like(logits)
    orchestrator.accumulate_additive_penalties(added)
    logits += added
    scale = orchestrator.accumulate_scaling_penalties()
    if scale is not None:
        logits = torch.where(logits < 0, logits * scale, logits / scale)
    return logits


def _prefilled(reqs: list, processors: bool = False) -> torch.Tensor:
    """The logits [requests, vocabulary] that the prefill of these requests samples from."""
    batch = MagicMock(reqs=reqs, device="cpu", return_logprob=False)
    batch.is_dllm.return_value = False
    batch.model_config.vocab_size = _VOCABULARY
    batch.model_config.is_encoder_decoder = False
    batch.spec_algorithm.is_none.return_value = False
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(
        _VOCABULARY, batch, _PENALIZERS
    )
    info = SimpleNamespace(
        penalizer_orchestrator=orchestrator, has_custom_logit_processor=processors
    )
    flags = SimpleNamespace(
        features=SimpleNamespace(enable_encoder_swa_bounded_replay=False),
        mamba=SimpleNamespace(enable_mamba_extra_buffer=False),
    )
    with contextlib.ExitStack() as stack:
        for name, value in (
            ("alloc_for_extend", lambda batch: (None, None, None)),
            ("get_exec", lambda: flags),
            ("is_pin_memory_available", lambda device: False),
            ("compute_extend_logprob_start_len", lambda **_: 0),
            (
                "SamplingBatchInfo",
                SimpleNamespace(from_schedule_batch=lambda *_: info),
            ),
        ):
            stack.enter_context(patch.object(schedule_batch, name, value))
        ScheduleBatch.prepare_for_extend(batch)
    return _logits(orchestrator)


def _decoded(output: list, asked: dict) -> torch.Tensor:
    """The logits [vocabulary] after the same output of a request that was never retracted."""
    batch = MagicMock(reqs=[_request([], asked)], device="cpu")
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(
        _VOCABULARY, batch, _PENALIZERS
    )
    for token in output:
        orchestrator.cumulate_output_tokens(torch.tensor([token]))
    return _logits(orchestrator)[0]


class TestPenaltiesAfterRetraction(CustomTestCase):
    def test_it_goes_on_as_if_it_had_not_been_retracted(self):
        output = [5, 6, 5, 9]
        for asked in (
            {"frequency_penalty": 0.7},
            {"presence_penalty": 1.5},
            {"repetition_penalty": 1.3},
            {"min_new_tokens": 4},
            {"min_new_tokens": 5},
            {"frequency_penalty": -0.5, "repetition_penalty": 0.8},
        ):
            reqs = [_request(output, asked), _request([], asked), _request([7], {})]
            found = _prefilled(reqs)
            for row, req in enumerate(reqs):
                put_out = req.output_ids.tolist()
                wanted = _decoded(put_out, asked if row < 2 else {})
                torch.testing.assert_close(found[row], wanted, msg=f"{asked}, {row}")

    def test_a_processor_forgets_tokens_that_were_thrown_away(self):
        req = _request([7], {"custom_params": {"token": 9, "seen": [3]}})
        req.custom_logit_processor = "its text"
        own = req.sampling_params.custom_params
        own["__req__"] = req
        for _ in range(2):
            _prefilled([req], processors=True)
            self.assertEqual(own, {"token": 9, "seen": [3], "__req__": req})
            # The prefill's token is judged, and lost with a retraction before it is put out.
            own["seen"].append(4)
            own["last"] = 4
        req.output_ids.append(4)  # this time it is put out
        _prefilled([req], processors=True)
        self.assertEqual(own["seen"], [3, 4])


if __name__ == "__main__":
    unittest.main()
