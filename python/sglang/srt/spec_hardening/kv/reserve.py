"""How far into its KV a request may write before the scheduler looks again.

Slots are given out on the host before a cycle is launched, so they have to be enough for the most
that the cycle can write. Two things make that more than one verify: a draft tree has slots of its
own, page by page, for each branch; and under overlap the result of the cycle before is not known
yet, so the request may be longer than the host believes. It is longer by accepted tokens only,
num_steps and the bonus token at the most, however many slots a tree takes.

Called by: `speculative/eagle_utils.py` to allocate and `managers/schedule_batch.py` to see whether
there is room (patch `reserve-one-cycle`); both have to ask the same. No torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Cycle:
    """What one cycle may write, the widest of all states that the server can be in.

    Attributes:
        steps: tokens that a branch drafts (num_steps).
        topk: branches.
        draft_tokens: slots that a verify writes (num_draft_tokens).
        page_size: tokens of a page; with several branches each has pages of its own.
        in_flight: cycles launched whose result is not known: 1 under overlap, else 0.
    """

    steps: int
    topk: int
    draft_tokens: int
    page_size: int
    in_flight: int

    @property
    def unknown(self) -> int:
        """Most tokens by which a request can be longer than the host knows."""
        return self.in_flight * min(self.steps + 1, self.draft_tokens)

    def end(self, length: int) -> int:
        """First position after all that a cycle may write if the KV is `length` tokens long."""
        verify = length + self.draft_tokens
        if self.topk == 1 or self.page_size == 1:
            return max(verify, length + self.steps * self.topk)
        # Each branch begins with a copy of the page that `length` lies in.
        inside = length % self.page_size
        pages = -(-(inside + self.steps) // self.page_size)
        return max(verify, length - inside + self.topk * pages * self.page_size)

    def reach(self, committed: int) -> int:
        """`end`, of whichever length the request may have; not rounded to pages.

        Args:
            committed: tokens of KV that the host knows to be right.
        """
        longest = committed + self.unknown
        if self.topk == 1 or self.page_size == 1:
            return self.end(longest)
        # Not monotone: a length that fills its page needs fewer pages than one before that.
        return max(self.end(length) for length in range(committed, longest + 1))

    def kept_free(self, prompt: int, capacity: int) -> int:
        """Slots of the pool to leave for the last cycle of a request that is cut to the pool.

        Its first token comes from the prefill and takes no cycle, so a prompt that fills the pool
        but for a cycle still gets that one.

        Args:
            prompt: tokens of the request's input.
            capacity: slots of the whole pool.
        """
        page = self.page_size
        upstreams = capacity - -(-prompt // page) * page - page - 1  # new tokens without this
        return min(most(self), max(0, upstreams - 1))


@lru_cache
def most(cycle: Cycle) -> int:
    """Most slots that a request holds past its tokens, in whole pages, whatever its length."""
    page = cycle.page_size
    lengths = range(page, 2 * page)
    return max(-(-cycle.reach(length) // page) * page - length for length in lengths)


def cycle_of(algorithm: Any, allocator: Any) -> Cycle | None:
    """The widest cycle of this process's server; None where upstream's own reserve is kept.

    Upstream's is twice the slots of a cycle. It is kept for what was not looked at: algorithms
    other than EAGLE and EAGLE3, pipeline and decode-context parallelism, PD multiplexing, HiSparse,
    NPUs.

    Args:
        algorithm: the `SpeculativeAlgorithm`.
        allocator: of the KV slots.
    """
    from sglang.srt.runtime_context import (
        get_disagg,
        get_memory,
        get_parallel,
        get_schedule,
        get_spec,
        max_speculative_num_draft_tokens,
    )

    spec, parallel = get_spec(), get_parallel()
    if (
        not algorithm.is_eagle()
        or algorithm.is_frozen_kv_mtp()
        or spec.enable_multi_layer_eagle
        or parallel.pp_size > 1
        or parallel.attn_dcp_size > 1
        or get_disagg().enable_pdmux
        or get_memory().enable_hisparse
        or str(allocator.device).startswith("npu")
    ):
        return None
    topk = spec.speculative_eagle_topk or 1
    tokens = max_speculative_num_draft_tokens() or 1
    steps = spec.speculative_num_steps or 1
    # A chain of several states: the widest verify says how deep the deepest is.
    deepest = max(steps, tokens - 1) if topk == 1 else steps
    # The flag, not the batch's own field: the one thing that must never be taken for off.
    unseen = 0 if get_schedule().disable_overlap_schedule else 1
    return Cycle(deepest, topk, tokens, int(allocator.page_size), unseen)


def of_batch(batch: Any, otherwise: int) -> Callable[[Any], int]:
    """Slots past `kv_committed_len` that each request of a batch must own before its next cycle.

    Args:
        batch: the `ScheduleBatch` that decodes.
        otherwise: upstream's reserve, the answer where `cycle_of` has none.
    """
    cycle = cycle_of(batch.spec_algorithm, batch.token_to_kv_pool_allocator)
    if cycle is None:
        return lambda request: otherwise

    def reserve(request: Any) -> int:
        committed = int(request.kv.kv_committed_len)
        return cycle.reach(committed) - committed

    return reserve


def of_last_cycle(allocator: Any, prompt: int, capacity: int) -> int:
    """Slots that a request needs besides its prompt and all its new tokens; 0 without speculation.

    A request is cut to what the whole pool can hold. Its last cycle writes past its end, and a
    request that has no room for that would be aborted for lack of memory instead of ending.

    Called by: `managers/scheduler.py` (patch `room-for-the-last-cycle`).

    Args:
        allocator: of the KV slots.
        prompt: tokens of its input.
        capacity: slots that the scheduler has for one request.
    """
    from sglang.srt.runtime_context import get_spec
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    algorithm = SpeculativeAlgorithm.from_string(get_spec().speculative_algorithm)
    cycle = cycle_of(algorithm, allocator)
    return 0 if cycle is None else cycle.kept_free(prompt, capacity)
