"""Unit tests for custom logit processors in the verify step: no server, no model loading."""

import unittest
from array import array
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
from sglang.srt.sampling.sampling_batch_info import ProcessorEntry, SamplingBatchInfo
from sglang.srt.speculative import eagle_utils

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

_VOCABULARY = 16


class _Length(CustomLogitProcessor):
    """Allows one token only: the number of tokens that the request has put out."""

    def __call__(self, logits, custom_param_list):
        logits.fill_(float("-inf"))
        for row, params in enumerate(custom_param_list):
            logits[row, len(params["__req__"].output_ids)] = 0.0
        return logits


class _Counter(CustomLogitProcessor):
    """Allows one token only: how often it was called, which it keeps in the parameters."""

    def __call__(self, logits, custom_param_list):
        logits.fill_(float("-inf"))
        for row, params in enumerate(custom_param_list):
            params["calls"] += 1
            logits[row, params["calls"]] = 0.0
        return logits


class _Request:
    """What the verify step reads of a request."""

    retraction_count = 0
    sampling_params = SimpleNamespace(
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        min_new_tokens=0,
    )

    def __init__(self, output: list):
        self.output_ids = array("q", output)


def _step(processor, req: _Request, params: dict, nodes: int, accepted: int) -> list:
    """The target's token at each node of a chain, of whose drafts so many are accepted."""
    found = []

    def walk(predicts, accept_index, accept_token_num, target_predict, **_):
        found.extend(target_predict.flatten().tolist())
        accept_index[0, : accepted + 1] = torch.arange(accepted + 1)
        return predicts, accept_index, accept_token_num.fill_(accepted)

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
        has_custom_logit_processor=True,
        custom_params=[params],
        custom_logit_processor={0: ProcessorEntry(processor, [0], torch.tensor([0]))},
    )
    tree = SimpleNamespace(
        draft_token=torch.full((nodes,), 9),
        draft_token_num=nodes,
        max_tree_depth=nodes,
        tree_topk=1,
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
    )
    batch = SimpleNamespace(
        device="cpu",
        reqs=[req],
        seq_lens=torch.tensor([9]),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        sampling_info=info,
        return_logprob=False,
    )
    logits = torch.zeros(nodes, _VOCABULARY)
    spec = SimpleNamespace(speculative_use_rejection_sampling=False)
    with (
        patch.object(eagle_utils, "get_spec", lambda: spec),
        patch.object(eagle_utils, "verify_tree_greedy_func", walk),
    ):
        eagle_utils.eagle_sample(tree, batch, SimpleNamespace(next_token_logits=logits))
    return found


class TestProcessorsByPosition(CustomTestCase):
    def test_each_position_is_asked_with_the_output_that_leads_to_it(self):
        req = _Request([5, 5])
        found = _step(_Length(), req, {"__req__": req}, nodes=3, accepted=2)
        self.assertEqual(found, [2, 3, 4])
        self.assertEqual(req.output_ids.tolist(), [5, 5], "the request's own list")

    def test_what_a_processor_remembers_is_that_of_the_last_accepted_position(self):
        req = _Request([5])
        params = {"__req__": req, "calls": 0}
        found = _step(_Counter(), req, params, nodes=4, accepted=1)
        self.assertEqual(found, [1, 2, 3, 4])
        self.assertEqual(params["calls"], 2, "the root and one draft")
        self.assertIs(params["__req__"], req)
        found = _step(_Counter(), req, params, nodes=4, accepted=3)
        self.assertEqual(found, [3, 4, 5, 6])

    def test_a_batch_with_one_waits_for_the_result_before(self):
        """The processor is asked on the host, with the tokens of the step before."""
        scheduler = SimpleNamespace(require_mlp_sync=False, result_queue=["a result"])
        mode = SimpleNamespace(is_decode=lambda: True, is_extend=lambda: False)
        for has_one in (True, False):
            batch = SimpleNamespace(
                forward_mode=mode,
                spec_algorithm=SimpleNamespace(is_none=lambda: False),
                grammar_needs_sync=lambda: False,
                sampling_info=SimpleNamespace(has_custom_logit_processor=has_one),
            )
            waits = Scheduler.is_disable_overlap_for_batch(scheduler, batch, batch)
            self.assertEqual(waits, has_one)


if __name__ == "__main__":
    unittest.main()
