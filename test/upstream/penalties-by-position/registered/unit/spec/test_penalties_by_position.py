"""Unit tests for penalties in a verify window: no server, no model loading."""

import contextlib
import unittest
from array import array
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.runtime_context import get_context
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative import eagle_utils

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_VOCABULARY, _END = 16, 1
_PROMPT = [2, 3, 4]


class _Request:
    """What the verify step reads of a request; prefill has put out its first token."""

    retraction_count = 0
    tokenizer = None
    eos_token_ids = {_END}

    def __init__(self, first: int, **asked):
        self.sampling_params = SamplingParams(max_new_tokens=99, **asked)
        self.origin_input_ids = array("q", _PROMPT)
        self.output_ids = array("q", [first])
        self.kv = SimpleNamespace(kv_committed_len=len(_PROMPT))


def _parents(nodes: list) -> dict:
    """Links of a tree, given as the parent of each node, as verify walks along them."""
    child, sibling = torch.full((len(nodes),), -1), torch.full((len(nodes),), -1)
    last = {}
    for node, parent in list(enumerate(nodes))[1:]:
        (sibling if parent in last else child)[last.get(parent, parent)] = node
        last[parent] = node
    return {
        "retrieve_next_token": child[None],
        "retrieve_next_sibling": sibling[None],
        "tree_topk": 1 if nodes == [0, *range(len(nodes) - 1)] else 2,
        "max_tree_depth": len(nodes),
    }


def _targets(
    req: _Request, tokens: list, liked: dict, parents=(0, 0, 1), accepted=(0, 1, 2)
) -> list:
    """The target's token at each node of one verify step, which accepts the nodes `accepted`.

    Args:
        tokens: of the nodes; the first is the last token that was put out.
        liked: the logits of some tokens, at every node; the others have 0.
    """
    found = []

    def walk(predicts, accept_index, accept_token_num, target_predict, **_):
        found.extend(target_predict.flatten().tolist())
        accept_index[0, : len(accepted)] = torch.tensor(accepted)
        return predicts, accept_index, accept_token_num.fill_(len(accepted) - 1)

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
    tree = SimpleNamespace(
        draft_token=torch.tensor(tokens),
        draft_token_num=len(tokens),
        retrieve_index=None,
        **_parents(list(parents)),
    )
    batch = SimpleNamespace(
        device="cpu",
        reqs=[req],
        seq_lens=torch.tensor([9]),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        sampling_info=info,
        return_logprob=False,
    )
    logits = torch.zeros(len(tokens), _VOCABULARY)
    for token, value in liked.items():
        logits[:, token] = value
    spec = SimpleNamespace(speculative_use_rejection_sampling=False)
    with (
        patch.object(eagle_utils, "get_spec", lambda: spec),
        patch.object(eagle_utils, "verify_tree_greedy_func", walk),
    ):
        eagle_utils.eagle_sample(tree, batch, SimpleNamespace(next_token_logits=logits))
    return found


class _Prepared(Exception):
    """Ends the preparation of a step: what follows is not the subject."""


class TestPenaltiesByPosition(CustomTestCase):
    LIKED = {6: 3.0, 8: 2.5, 10: 2.2}

    def test_each_position_has_what_was_put_out_before_it(self):
        req = _Request(5, frequency_penalty=1.0)
        self.assertEqual(_targets(req, [5, 6, 8], self.LIKED), [6, 8, 10])

    def test_what_a_step_accepted_counts_in_the_next(self):
        """The host has not seen it yet, as with overlap: the request's list is as it was."""
        req = _Request(5, frequency_penalty=1.0)
        _targets(req, [5, 6, 8], self.LIKED)
        self.assertEqual(_targets(req, [10, 6, 6], self.LIKED), [6, 8, 8])

    def test_what_a_step_did_not_accept_does_not_count(self):
        req = _Request(5, frequency_penalty=1.0)
        _targets(req, [5, 8, 8], self.LIKED, accepted=(0,))
        self.assertEqual(_targets(req, [6, 8, 8], self.LIKED), [8, 10, 10])

    def test_branches_of_a_tree_do_not_see_each_other(self):
        req = _Request(5, frequency_penalty=1.0)
        found = _targets(req, [5, 6, 8], self.LIKED, parents=(0, 0, 0))
        self.assertEqual(found, [6, 8, 6])

    def test_presence_and_repetition(self):
        for asked in ({"presence_penalty": 1.0}, {"repetition_penalty": 2.0}):
            found = _targets(_Request(5, **asked), [5, 6, 8], self.LIKED)
            self.assertEqual(found, [6, 8, 10], asked)

    def test_stop_tokens_are_banned_for_so_many_tokens_and_no_longer(self):
        req = _Request(5, min_new_tokens=3)
        self.assertEqual(_targets(req, [5, 6, 6], {_END: 5.0, 6: 3.0}), [6, 6, _END])

    def test_a_request_that_asks_for_nothing_is_left_alone(self):
        self.assertEqual(_targets(_Request(5), [5, 6, 8], self.LIKED), [6, 6, 6])

    def test_a_step_is_not_counted_as_one_token_as_well(self):
        batch = MagicMock()
        orchestrator = batch.sampling_info.penalizer_orchestrator
        orchestrator.is_required, orchestrator.penalizers = True, {}
        with (
            get_context().override_server_args(),
            patch.object(eagle_utils, "get_alloc_reserve_per_decode", return_value=1),
            patch.object(
                eagle_utils, "page_aligned_decode_alloc_lens", side_effect=_Prepared
            ),
            contextlib.suppress(_Prepared),
        ):
            eagle_utils.eagle_prepare_for_decode(batch)
        batch.cumulate_penalty_output_tokens.assert_not_called()
        self.assertFalse(orchestrator.is_required)


if __name__ == "__main__":
    unittest.main()
