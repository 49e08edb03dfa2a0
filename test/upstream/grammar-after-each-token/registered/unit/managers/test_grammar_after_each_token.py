"""Unit tests for a grammar that ends or aborts a request: no server, no model loading."""

import unittest
from array import array
from functools import partial
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler_components import batch_result_processor
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

_Processor = batch_result_processor.SchedulerBatchResultProcessor
_EOS, _FORBIDDEN = 2, 9
_STOPPED, _FAILED = {"type": "stop", "matched": _EOS}, "Grammar accept_token failed: 9"


class _Grammar:
    """It ends with EOS, forbids one token, and takes none after its end."""

    finished = False

    def __init__(self):
        self.taken = []

    def accept_token(self, token):
        if token == _FORBIDDEN or self.is_terminated():
            raise ValueError(token)
        self.taken.append(token)

    def is_terminated(self):
        return _EOS in self.taken


def _request(**asked) -> Req:
    sampling = SamplingParams(**{"max_new_tokens": 32, **asked})
    sampling.normalize(None)
    req = Req(
        "one", "", array("q", [1, 3]), sampling, vocab_size=320, eos_token_ids={_EOS}
    )
    req.grammar = _Grammar()
    return req


def _processor() -> MagicMock:
    """The processor of results, with no more of its own than what asks the grammar."""
    processor = MagicMock(enable_overlap=False, enable_overlap_mlx=False)
    for name in ("_accept_grammar_tokens", "_apply_prefill_grammar"):
        setattr(processor, name, partial(getattr(_Processor, name), processor))
    processor.beam_coordinator.commit_decode.return_value = set()
    return processor


def _batch(req: Req, speculative: bool) -> MagicMock:
    batch = MagicMock(reqs=[req], decoding_reqs=None, return_logprob=False)
    batch.batch_size.return_value = 1
    batch.return_hidden_states = False
    batch.spec_algorithm.is_none.return_value = not speculative
    return batch


def _decode(req: Req, run: list, speculative: bool):
    """One decode step that put out `run`; a verify has advanced the grammar by it already."""
    processor = _processor()
    if speculative:
        run = _Processor._accept_grammar_tokens(processor, req, run)
    processor._normalize_decode_outputs.return_value = ([run], None)
    with patch.object(batch_result_processor, "get_observability"):
        _Processor.process_batch_result_decode(
            processor, _batch(req, speculative), MagicMock()
        )


def _prefill(req: Req, token: int, advanced: bool):
    """The step that puts out the first token.

    Args:
        advanced: the next verify has advanced the grammar by it already.
    """
    processor = _processor()
    if advanced:
        _Processor._accept_grammar_tokens(processor, req, [token])
    result = MagicMock(
        next_token_ids=torch.tensor([token]), grammar_advanced=advanced, copy_done=None
    )
    names = ("get_memory", "release_kv_cache", "checkpoint_kv_cache")
    with patch.multiple(
        batch_result_processor, **{name: MagicMock() for name in names}
    ):
        batch_result_processor.get_memory().enable_hisparse = False
        _Processor.process_batch_result_prefill(
            processor, _batch(req, advanced), result
        )


def _given(req: Req) -> tuple:
    """What a request has put out, and why it ended."""
    reason = req.finished_reason.to_json() if req.finished_reason else None
    if reason and reason["type"] == "abort":
        reason = reason["message"]
    return list(req.output_ids_through_stop), reason


def _plain(run: list, **asked) -> tuple:
    """Token by token; after the end none is asked for."""
    req = _request(**asked)
    for token in run:
        if not req.finished():
            _decode(req, [token], speculative=False)
    return _given(req)


def _verified(run: list, **asked) -> tuple:
    req = _request(**asked)
    _decode(req, run, speculative=True)
    return _given(req)


class TestGrammarAfterEachToken(CustomTestCase):
    def test_no_token_comes_after_the_end_of_a_grammar(self):
        for given in (_plain, _verified):
            self.assertEqual(
                given([5, _EOS, 6], ignore_eos=True), ([5, _EOS], _STOPPED)
            )

    def test_no_token_comes_after_one_that_is_forbidden(self):
        for given in (_plain, _verified):
            self.assertEqual(given([5, _FORBIDDEN, 6]), ([5, _FORBIDDEN], _FAILED))

    def test_a_forbidden_token_behind_the_answer_takes_nothing_away(self):
        run = [5, 6, _FORBIDDEN, 7]
        for given in (_plain, _verified):
            self.assertEqual(
                given(run, max_new_tokens=2), ([5, 6], {"type": "length", "length": 2})
            )
            self.assertEqual(
                given(run, stop_token_ids=[6]),
                ([5, 6], {"type": "stop", "matched": 6}),
            )

    def test_a_forbidden_token_that_is_a_stop_ends_the_answer(self):
        for given in (_plain, _verified):
            tokens, reason = given([5, _FORBIDDEN], stop_token_ids=[_FORBIDDEN])
            self.assertEqual(tokens, [5, _FORBIDDEN])
            self.assertEqual(reason, {"type": "stop", "matched": _FORBIDDEN})

    def test_the_first_token_is_looked_at_as_any_other(self):
        for advanced in (False, True):
            for token, asked, reason in (
                (5, {}, None),
                (_EOS, {"ignore_eos": True}, _STOPPED),
                (_FORBIDDEN, {}, _FAILED),
            ):
                req = _request(**asked)
                _prefill(req, token, advanced)
                self.assertEqual(_given(req), ([token], reason), (token, advanced))
                self.assertEqual(req.grammar.finished, req.finished())
                self.assertEqual(req.grammar.taken, [token] * (token != _FORBIDDEN))


if __name__ == "__main__":
    unittest.main()
