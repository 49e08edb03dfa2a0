"""Unit tests for sampling in the verify step on the CPU: no server, no model loading."""

import contextlib
import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt import runtime_context
from sglang.srt.arg_groups import speculative_hook
from sglang.srt.layers import dp_attention, sampler
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.spec_hardening import target_sampling
from sglang.srt.speculative import eagle_utils

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_ROWS, _NODES = 512, 2
_SHARES = torch.tensor([0.4, 0.3, 0.2, 0.1])
_ALL = 1 << 30  # no top-k
_REQUEST = SimpleNamespace(
    retraction_count=0,
    sampling_params=SimpleNamespace(
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        min_new_tokens=0,
    ),
)


def _sampling_info(temperature: float, top_k: int) -> SamplingBatchInfo:
    return SamplingBatchInfo(
        temperatures=torch.full((_ROWS, 1), temperature),
        top_ps=torch.ones(_ROWS),
        top_ks=torch.full((_ROWS,), top_k, dtype=torch.int32),
        min_ps=torch.zeros(_ROWS),
        is_all_greedy=False,
        is_any_greedy=top_k == 1,
        need_top_p_sampling=False,
        need_top_k_sampling=top_k != _ALL,
        need_min_p_sampling=False,
        vocab_size=len(_SHARES),
        device="cpu",
    )


def _targets(temperature: float = 1.0, top_k: int = _ALL) -> torch.Tensor:
    """The target's tokens at every node of the trees of one batch, by row."""
    found = []

    def walk(predicts, accept_index, accept_token_num, target_predict, **named):
        found.append(target_predict.clone())
        return predicts, accept_index, accept_token_num.zero_()

    flags = SimpleNamespace(
        deterministic=SimpleNamespace(
            rl_on_policy_target=None, enable_deterministic_inference=False
        ),
        kernel=SimpleNamespace(sampling_backend="pytorch"),
        features=SimpleNamespace(sampling_mask_max_tokens=0),
    )
    group = SimpleNamespace(world_size=1, device_group=None)
    parallel = SimpleNamespace(tp_group=group)
    tree = SimpleNamespace(
        draft_token=torch.zeros(_ROWS * _NODES, dtype=torch.int64),
        draft_token_num=_NODES,
        max_tree_depth=_NODES,
        tree_topk=1,
        positions=torch.arange(_ROWS * _NODES),
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
    )
    batch = SimpleNamespace(
        device="cpu",
        reqs=[_REQUEST] * _ROWS,
        seq_lens=torch.full((_ROWS,), 9),
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        sampling_info=_sampling_info(temperature, top_k),
        return_logprob=False,
    )
    logits = _SHARES.log().repeat(_ROWS * _NODES, 1)
    spec = SimpleNamespace(speculative_use_rejection_sampling=False)
    target_sampling._sampler.cache_clear()
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (eagle_utils, "_is_cpu", True),
            (eagle_utils, "verify_tree_greedy_func", walk),
            (eagle_utils, "get_spec", lambda: spec),
            (runtime_context, "get_parallel", lambda: parallel),
            (dp_attention, "is_dp_attention_enabled", lambda: False),
            (sampler, "is_dp_attention_enabled", lambda: False),
            (sampler, "get_parallel", lambda: parallel),
            (sampler, "get_exec", lambda: flags),
            (sampler, "get_server_args", lambda: flags.kernel),
        ):
            stack.enter_context(patch.object(module, name, value))
        stack.callback(target_sampling._sampler.cache_clear)
        eagle_utils.eagle_sample(tree, batch, SimpleNamespace(next_token_logits=logits))
    return found[0].flatten()


class TestCpuVerifySampling(CustomTestCase):
    def test_tokens_are_drawn_from_the_targets_distribution(self):
        torch.manual_seed(0)
        counts = torch.bincount(_targets(), minlength=4) / (_ROWS * _NODES)
        # Four standard deviations of a share that is drawn 1024 times.
        for share, wanted in zip(counts.tolist(), _SHARES.tolist()):
            self.assertAlmostEqual(share, wanted, delta=4 * (wanted / 1024) ** 0.5)

    def test_top_k_holds_at_every_node(self):
        torch.manual_seed(0)
        self.assertEqual(set(_targets(top_k=2).tolist()), {0, 1})

    def test_greedy_rows_are_greedy_in_any_batch(self):
        self.assertEqual(set(_targets(top_k=1).tolist()), {0})

    def test_rejection_sampling_is_refused_at_launch(self):
        cfg = SimpleNamespace(device="cpu", speculative_use_rejection_sampling=True)
        with self.assertRaisesRegex(ValueError, "--speculative-use-rejection-sampling"):
            target_sampling.refuse_rejection_sampling(cfg)
        self.assertTrue(hasattr(speculative_hook, "target_sampling"))


if __name__ == "__main__":
    unittest.main()
