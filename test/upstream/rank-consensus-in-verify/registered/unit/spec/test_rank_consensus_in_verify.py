"""Unit tests for the verify step in the rank consensus checker: no server, no model loading."""

import contextlib
import queue
import threading
import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

import torch

from sglang.srt.speculative import eagle_worker_common
from sglang.srt.utils import rank_consensus_checker

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_NUM_DRAFT_TOKENS = 4


class _StepEnds(Exception):
    """Ends the step after sampling: the commit that follows is not the subject."""


def _verify_step(accept_lens: list, predict: list) -> None:
    """One verify step of a rank whose sampling gave this result."""
    rows = len(accept_lens)
    verify_input = MagicMock()
    verify_input.draft_token = torch.arange(rows * _NUM_DRAFT_TOKENS)
    batch = MagicMock(
        spec_info=verify_input, has_grammar=False, hisparse_coordinator=None
    )
    batch.seq_lens = torch.full((rows,), 10)
    sampled = (
        torch.tensor(predict),
        torch.tensor(accept_lens, dtype=torch.int32),
        torch.zeros((rows, _NUM_DRAFT_TOKENS), dtype=torch.int32),
    )
    stand_ins = {
        "record_stream_for_v2_verify": None,
        "record_stream_each": None,
        "maybe_detect_nan": None,
        "maybe_detect_inf": None,
        "eagle_prepare_for_verify": (MagicMock(), False),
        "eagle_sample": sampled,
    }
    with contextlib.ExitStack() as stack:
        for name, result in stand_ins.items():
            stack.enter_context(
                patch.object(eagle_worker_common, name, return_value=result)
            )
        stack.enter_context(
            patch.object(
                eagle_worker_common,
                "commit_mamba_states_after_verify",
                side_effect=_StepEnds,
            )
        )
        stack.enter_context(contextlib.suppress(_StepEnds))
        eagle_worker_common.run_eagle_verify(
            batch,
            target_worker=MagicMock(),
            req_to_token_pool=MagicMock(),
            token_to_kv_pool_allocator=SimpleNamespace(
                get_kvcache=lambda: SimpleNamespace()
            ),
            plan_stream=None,
            plan_stream_ctx=contextlib.nullcontext(),
            topk=1,
            num_draft_tokens=_NUM_DRAFT_TOKENS,
            device="cpu",
            metadata_ready_pre_pad=False,
            finalize_tree_path=False,
        )


def _told(accept_lens: list, predict: list) -> list:
    """What a rank tells the checker in one step; ranks that tell the same agree."""
    events = queue.Queue()
    with (
        patch.object(rank_consensus_checker, "_q", events),
        patch.object(
            rank_consensus_checker, "_scheduler_thread", threading.current_thread()
        ),
    ):
        _verify_step(accept_lens, predict)
    return list(events.queue)


class TestRankConsensusInVerify(CustomTestCase):
    def test_ranks_that_agree_tell_the_same(self):
        told = _told([2, 4], [5, 6, 0, 0, 7, 8, 9, 1])
        self.assertEqual(len(told), 1)
        self.assertEqual(told, _told([2, 4], [5, 6, 0, 0, 7, 8, 9, 1]))

    def test_another_accept_length_is_told(self):
        one = _told([2, 4], [5, 6, 0, 0, 7, 8, 9, 1])
        other = _told([2, 3], [5, 6, 0, 0, 7, 8, 9, 1])
        self.assertNotEqual(one, other)
        self.assertIn("[2, 3]", other[0])

    def test_another_token_is_told(self):
        one = _told([2, 4], [5, 6, 0, 0, 7, 8, 9, 1])
        self.assertNotEqual(one, _told([2, 4], [5, 6, 0, 0, 7, 8, 9, 2]))

    def test_nothing_is_copied_to_the_host_where_the_checker_is_off(self):
        with patch.object(torch.Tensor, "tolist", side_effect=AssertionError):
            _verify_step([2, 4], [5, 6, 0, 0, 7, 8, 9, 1])


if __name__ == "__main__":
    unittest.main()
