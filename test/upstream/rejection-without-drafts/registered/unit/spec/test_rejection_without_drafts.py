"""Unit tests for rejection sampling of a step that drafted nothing: no server, no model loading."""

import contextlib
import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt import runtime_context
from sglang.srt.layers import dp_attention
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.speculative import eagle_utils

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_ROWS, _VOCABULARY = 3, 16


class _Request:
    """What a batch without penalties is asked for."""

    retraction_count = 0
    sampling_params = SimpleNamespace(
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        min_new_tokens=0,
    )


def _verify(nodes: int, draft_probs, is_hip: bool = False) -> list:
    """Which kernel samples a step with so many nodes, and the distributions that it gets."""
    called = []

    def kernel(name: str):
        def sample(*, accept_token_num, target_probs, draft_probs, **_):
            called.append((name, target_probs, draft_probs))
            accept_token_num.zero_()

        return sample

    info = SamplingBatchInfo(
        temperatures=torch.ones(_ROWS, 1),
        top_ps=torch.ones(_ROWS),
        top_ks=torch.full((_ROWS,), 1 << 30, dtype=torch.int32),
        min_ps=torch.zeros(_ROWS),
        is_all_greedy=False,
        is_any_greedy=False,
        need_top_p_sampling=False,
        need_top_k_sampling=False,
        need_min_p_sampling=False,
        vocab_size=_VOCABULARY,
        device="cpu",
    )
    tree = SimpleNamespace(
        draft_token=torch.zeros(_ROWS * nodes, dtype=torch.int64),
        draft_token_num=nodes,
        draft_probs=draft_probs,
        max_tree_depth=nodes,
        tree_topk=1,
        retrieve_index=torch.arange(_ROWS * nodes).view(_ROWS, nodes),
        retrieve_next_token=None,
        retrieve_next_sibling=None,
    )
    batch = SimpleNamespace(
        device="cpu",
        reqs=[_Request() for _ in range(_ROWS)],
        seq_lens=torch.full((_ROWS,), 9),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        sampling_info=info,
        return_logprob=False,
    )
    spec = SimpleNamespace(
        speculative_use_rejection_sampling=True,
        speculative_use_block_verification=False,
        speculative_accept_threshold_single=1.0,
        speculative_accept_threshold_acc=1.0,
    )
    parallel = SimpleNamespace(tp_group=SimpleNamespace(world_size=1))
    logits = torch.arange(_ROWS * nodes * _VOCABULARY).view(-1, _VOCABULARY) / 10
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (eagle_utils, "_is_cpu", False),
            (eagle_utils, "_is_hip", is_hip),
            (eagle_utils, "_is_xpu", False),
            (eagle_utils, "get_spec", lambda: spec),
            (
                eagle_utils,
                "sampling_softmax",
                lambda logits, temperatures: torch.softmax(logits, dim=-1),
            ),
            (eagle_utils, "chain_speculative_sampling_triton", kernel("rejection")),
            (
                eagle_utils,
                "tree_speculative_sampling_target_only",
                kernel("target only"),
            ),
            (runtime_context, "get_parallel", lambda: parallel),
            (dp_attention, "is_dp_attention_enabled", lambda: False),
        ):
            stack.enter_context(patch.object(module, name, value, create=True))
        eagle_utils.eagle_sample(tree, batch, SimpleNamespace(next_token_logits=logits))
    return called


class TestRejectionWithoutDrafts(CustomTestCase):
    def test_the_root_alone_is_sampled_from_the_target(self):
        """Adaptive speculation at 0 steps: there is no distribution of drafts."""
        ((name, target, _),) = _verify(nodes=1, draft_probs=None)
        self.assertEqual(name, "target only")
        self.assertEqual(target.shape, (_ROWS, 1, _VOCABULARY))

    def test_a_step_with_drafts_still_rejects(self):
        drafts = torch.full((_ROWS, 3, _VOCABULARY), 1 / _VOCABULARY)
        ((name, _, given),) = _verify(nodes=3, draft_probs=drafts)
        self.assertEqual(name, "rejection")
        self.assertIs(given, drafts)

    def test_drafts_without_a_distribution_are_still_an_error(self):
        with self.assertRaisesRegex(ValueError, "draft_probs"):
            _verify(nodes=3, draft_probs=None)


if __name__ == "__main__":
    unittest.main()
