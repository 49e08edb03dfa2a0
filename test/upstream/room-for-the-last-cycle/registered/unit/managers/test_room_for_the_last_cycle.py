"""Unit tests for requests longer than the KV pool: no server, no model loading."""

import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.allocator.base import BaseTokenToKVPoolAllocator
from sglang.srt.runtime_context import get_context
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_POOL, _PROMPT = 324, 200


class _Allocator(SimpleNamespace):
    max_new_tokens_for_memory = BaseTokenToKVPoolAllocator.max_new_tokens_for_memory


def _new_tokens(asked: int, prompt: int = _PROMPT, **speculation) -> int:
    """New tokens that a request may get from a pool of 324 slots."""
    scheduler = SimpleNamespace(
        max_new_tokens_limit=None,
        max_req_len=4096,
        max_total_num_tokens=_POOL,
        kv_shard_widening=1,
        page_size=1,
        sliding_window_size=None,
        chunked_prefill_size=None,
        token_to_kv_pool_allocator=_Allocator(page_size=1, device="cpu"),
    )
    req = SimpleNamespace(
        rid="one",
        origin_input_ids=[1] * prompt,
        sampling_params=SamplingParams(max_new_tokens=asked),
    )
    with get_context().override_server_args(**speculation):
        Scheduler.init_req_max_new_tokens(scheduler, req)
    return req.sampling_params.max_new_tokens


_CHAIN = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 6,
}


class TestRoomForTheLastCycle(CustomTestCase):
    def test_what_a_cycle_writes_past_the_end_is_left_free(self):
        """Under overlap 6 slots of the cycle and 6 tokens that may not be known yet."""
        plain = _new_tokens(1000)
        self.assertEqual(plain, _POOL - _PROMPT - 2)
        self.assertEqual(_new_tokens(1000, **_CHAIN), plain - 12)

    def test_a_request_that_fits_is_not_cut(self):
        self.assertEqual(_new_tokens(50, **_CHAIN), 50)

    def test_a_prompt_that_fills_the_pool_still_gets_the_token_of_its_prefill(self):
        self.assertEqual(_new_tokens(1000, prompt=_POOL - 3, **_CHAIN), 1)


if __name__ == "__main__":
    unittest.main()
