"""Unit tests for top-k, top-p and min-p in the verify step: no server, no model loading."""

import contextlib
import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.kernels.ops.sampling import renorm
from sglang.srt import runtime_context
from sglang.srt.layers import dp_attention
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.speculative import eagle_utils

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_SHARES = torch.tensor([0.1, 0.4, 0.2, 0.3])
_NODES = 2
_ALL = 1 << 30  # no top-k


class _Request:
    """What a batch without penalties is asked for."""

    retraction_count = 0
    sampling_params = SimpleNamespace(
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        min_new_tokens=0,
    )


def _top_k(probs: torch.Tensor, ks: torch.Tensor) -> torch.Tensor:
    """As the kernel, which only GPUs have."""
    rank = probs.argsort(dim=-1, descending=True).argsort(dim=-1)
    left = probs * (rank < ks[:, None])
    return left / left.sum(dim=-1, keepdim=True)


def _top_p(probs: torch.Tensor, ps: torch.Tensor) -> torch.Tensor:
    ordered, index = probs.sort(dim=-1, descending=True)
    kept = ordered * (ordered.cumsum(dim=-1) - ordered <= ps[:, None])
    left = torch.zeros_like(probs).scatter_(1, index, kept)
    return left / left.sum(dim=-1, keepdim=True)


def _kept(top_k: int = _ALL, top_p: float = 1.0, min_p: float = 0.0, backend="pytorch"):
    """The distribution that one request is sampled from, at each node of its tree."""
    given = []

    def kernel(*, accept_token_num, target_probs, **_):
        given.append(target_probs)
        accept_token_num.zero_()

    info = SamplingBatchInfo(
        temperatures=torch.ones(1, 1),
        top_ps=torch.tensor([top_p]),
        top_ks=torch.tensor([top_k], dtype=torch.int32),
        min_ps=torch.tensor([min_p]),
        is_all_greedy=False,
        is_any_greedy=False,
        need_top_p_sampling=top_p < 1,
        need_top_k_sampling=top_k != _ALL,
        need_min_p_sampling=min_p > 0,
        vocab_size=len(_SHARES),
        device="cpu",
    )
    tree = SimpleNamespace(
        draft_token=torch.zeros(_NODES, dtype=torch.int64),
        draft_token_num=_NODES,
        max_tree_depth=_NODES,
        tree_topk=1,
        retrieve_index=torch.arange(_NODES)[None],
        retrieve_next_token=None,
        retrieve_next_sibling=None,
    )
    batch = SimpleNamespace(
        device="cpu",
        reqs=[_Request()],
        seq_lens=torch.tensor([9]),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        sampling_info=info,
        return_logprob=False,
    )
    spec = SimpleNamespace(
        speculative_use_rejection_sampling=False,
        speculative_accept_threshold_single=1.0,
        speculative_accept_threshold_acc=1.0,
    )
    parallel = SimpleNamespace(tp_group=SimpleNamespace(world_size=1))
    flags = SimpleNamespace(kernel=SimpleNamespace(sampling_backend=backend))

    def softmax(logits, temperatures):
        return torch.softmax(logits / temperatures, dim=-1)

    stand_ins = [
        (eagle_utils, "_is_cpu", False),
        (eagle_utils, "_is_hip", False),
        (eagle_utils, "_is_xpu", False),
        (eagle_utils, "get_spec", lambda: spec),
        (eagle_utils, "sampling_softmax", softmax),
        (eagle_utils, "tree_speculative_sampling_target_only", kernel),
        (runtime_context, "get_parallel", lambda: parallel),
        (runtime_context, "get_exec", lambda: flags),
        (dp_attention, "is_dp_attention_enabled", lambda: False),
    ]
    for name, stand_in in (("top_k", _top_k), ("top_p", _top_p)):
        for module in (renorm, eagle_utils):
            stand_ins.append((module, f"{name}_renorm_prob", stand_in))
    with contextlib.ExitStack() as stack:
        for module, name, value in stand_ins:
            stack.enter_context(patch.object(module, name, value, create=True))
        logits = SimpleNamespace(next_token_logits=_SHARES.log().repeat(_NODES, 1))
        eagle_utils.eagle_sample(tree, batch, logits)
    return given[0][0]


class TestFiltersInVerify(CustomTestCase):
    def _expect(self, found: torch.Tensor, weights: list) -> None:
        wanted = torch.tensor(weights) / sum(weights)
        torch.testing.assert_close(found, wanted.expand(_NODES, -1))

    def test_no_filter(self):
        self._expect(_kept(), [0.1, 0.4, 0.2, 0.3])

    def test_min_p(self):
        self._expect(_kept(min_p=0.6), [0.0, 0.4, 0.0, 0.3])

    def test_min_p_with_the_others(self):
        self._expect(_kept(top_k=3, min_p=0.3), [0.0, 0.4, 0.2, 0.3])
        self._expect(_kept(top_p=0.3, min_p=0.3), [0.0, 1.0, 0.0, 0.0])

    def test_top_p_does_not_see_what_top_k_took(self):
        """Of 0.4 and 0.3 scaled to sum 1, top-p would leave the first only."""
        self._expect(_kept(top_k=2, top_p=0.5), [0.0, 0.4, 0.0, 0.3])

    def test_the_flashinfer_sampler_scales_in_between_for_min_p(self):
        found = _kept(top_k=2, top_p=0.5, min_p=0.01, backend="flashinfer")
        self._expect(found, [0.0, 1.0, 0.0, 0.0])


if __name__ == "__main__":
    unittest.main()
