"""Unit tests for the slots a request owns before a decode step: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.runtime_context import get_context
from sglang.srt.speculative import eagle_utils
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_LENGTH = 64


class TestDecodeReserve(CustomTestCase):
    def _needed(
        self, steps: int, topk: int, draft_tokens: int, page_size: int, overlap: bool
    ) -> int:
        """Slots that a request of 64 tokens is given for its first step; what is asked for when
        room is looked for has to be the same.
        """
        request = MagicMock(decode_batch_idx=0)
        request.kv = SimpleNamespace(kv_committed_len=_LENGTH, kv_allocated_len=_LENGTH)
        batch = MagicMock(
            reqs=[request],
            device="cpu",
            enable_overlap=overlap,
            spec_algorithm=SpeculativeAlgorithm.EAGLE3,
        )
        batch.token_to_kv_pool_allocator.page_size = page_size
        batch.token_to_kv_pool_allocator.device = "cpu"
        batch.req_to_token_pool.req_to_token.shape = (8, 4096)
        with (
            get_context().override_server_args(
                speculative_algorithm="EAGLE3",
                speculative_num_steps=steps,
                speculative_eagle_topk=topk,
                speculative_num_draft_tokens=draft_tokens,
                page_size=page_size,
                disable_overlap_schedule=not overlap,
            ),
            patch.object(eagle_utils, "alloc_for_spec_decode") as alloc,
        ):
            asked = ScheduleBatch._new_tokens_required_next_decode_spec_v2(
                batch, [request], page_size
            )
            eagle_utils.eagle_prepare_for_decode(batch)
        given = alloc.call_args.kwargs["num_needed_tokens"]
        self.assertEqual(asked, given)
        return given

    def test_a_chain_under_overlap_has_two_cycles_as_before(self):
        self.assertEqual(self._needed(3, 1, 4, page_size=1, overlap=True), 8)

    def test_without_overlap_one_cycle_is_enough(self):
        self.assertEqual(self._needed(3, 1, 4, page_size=1, overlap=False), 4)

    def test_of_a_tree_one_branch_may_be_unknown(self):
        """16 slots, and the 4 tokens that the cycle before may have accepted."""
        self.assertEqual(self._needed(3, 4, 16, page_size=1, overlap=True), 20)

    def test_branches_have_the_pages_that_they_may_write(self):
        """Four branches of a page each from the start of the page that the request may be in."""
        given = self._needed(3, 4, 16, page_size=64, overlap=True)
        self.assertEqual(given, 4 * 64)


if __name__ == "__main__":
    unittest.main()
