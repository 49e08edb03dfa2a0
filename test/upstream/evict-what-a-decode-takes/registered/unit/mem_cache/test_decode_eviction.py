"""Unit tests for what is evicted for a decode step: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.mem_cache import allocation

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

_PAGE = 16


def _evicted_for(before: list, after: list, is_decode: bool) -> int:
    """Slots that have to be free before requests grow from `before` to `after` tokens of KV."""
    tree_cache = MagicMock()
    allocator = tree_cache.token_to_kv_pool_allocator
    allocator.page_size = _PAGE
    allocator.get_extend_allocation_demand = (
        lambda prefix_lens, seq_lens, *, conservative_num_tokens, shard_size: (
            conservative_num_tokens
        )
    )
    lengths, ends = torch.tensor(before), torch.tensor(after)
    mode = SimpleNamespace(is_decode=lambda: is_decode)
    with (
        patch.object(allocation, "page_interleave_shard_size", return_value=1),
        patch.object(allocation, "evict_from_tree_cache") as evict,
    ):
        allocation.alloc_paged_token_slots_extend(
            tree_cache,
            lengths,
            lengths,
            ends,
            ends,
            last_loc=lengths - 1,
            extend_num_tokens=int((ends - lengths).sum()),
            batch=SimpleNamespace(forward_mode=mode, reqs=[]),
        )
    return evict.call_args.args[1]


class TestDecodeEviction(CustomTestCase):
    def test_a_decode_step_takes_the_pages_that_are_new(self):
        self.assertEqual(_evicted_for([32, 48], [48, 64], is_decode=True), 2 * _PAGE)

    def test_none_where_the_pages_are_there_already(self):
        self.assertEqual(_evicted_for([32, 48], [32, 48], is_decode=True), 0)

    def test_a_prefill_is_estimated_as_before(self):
        self.assertEqual(_evicted_for([32, 48], [48, 64], is_decode=False), 4 * _PAGE)


if __name__ == "__main__":
    unittest.main()
