"""Slots that a request owns before a cycle: enough for all that can be written, and no more."""

from __future__ import annotations

from itertools import product

import pytest
from sglang.srt.spec_hardening.kv.reserve import Cycle, most


def written(cycle: Cycle, length: int) -> set[int]:
    """Positions that one cycle writes: a verify's window, and each branch's drafts.

    With pages of more than a token each branch is laid out from the start of a page, behind a copy
    of what the request has in its last page.
    """
    verify = set(range(length, length + cycle.draft_tokens))
    if cycle.topk == 1 or cycle.page_size == 1:
        return verify | set(range(length, length + cycle.steps * cycle.topk))
    page, inside = cycle.page_size, length % cycle.page_size
    pages = (inside + cycle.steps + page - 1) // page
    begins = [length - inside + branch * pages * page for branch in range(cycle.topk)]
    drafts = {begin + inside + step for begin in begins for step in range(cycle.steps)}
    read = {begin + offset for begin in begins for offset in range(pages * page)}
    return verify | drafts | read


SHAPES = [(1, 1, 2), (3, 1, 4), (7, 1, 8), (3, 4, 8), (4, 4, 16), (5, 8, 64), (3, 2, 3)]
CYCLES = [
    Cycle(*shape, page, in_flight)
    for shape, page, in_flight in product(SHAPES, (1, 4, 16, 64), (0, 1))
]


@pytest.mark.parametrize("cycle", CYCLES, ids=str)
def test_all_that_can_be_written_is_owned_and_nothing_besides(cycle: Cycle) -> None:
    for committed in range(1, 3 * cycle.page_size + 8):
        # Under overlap a verify accepts up to all of a branch and the bonus token unseen.
        unseen = range(cycle.in_flight * min(cycle.steps + 1, cycle.draft_tokens) + 1)
        most = max(max(written(cycle, committed + more)) for more in unseen)
        assert cycle.reach(committed) == most + 1


@pytest.mark.parametrize("cycle", CYCLES, ids=str)
def test_never_more_than_upstream_reserves(cycle: Cycle) -> None:
    """Twice the slots of a cycle, each branch with the most pages that it may need."""
    page, steps = cycle.page_size, cycle.steps
    one = max(steps * cycle.topk, cycle.draft_tokens)
    if page > 1 and cycle.topk > 1:
        pages = (page - 1 + steps + page - 1) // page
        one = max(pages * page * cycle.topk, cycle.draft_tokens)
    for committed in range(1, 2 * page + 2):
        assert cycle.reach(committed) - committed <= 2 * one


def test_a_chain_under_overlap_needs_what_upstream_reserves() -> None:
    assert Cycle(3, 1, 4, 1, in_flight=1).reach(100) == 108
    assert Cycle(3, 1, 4, 1, in_flight=0).reach(100) == 104


@pytest.mark.parametrize("cycle", CYCLES, ids=str)
def test_most_is_the_most_over_all_lengths(cycle: Cycle) -> None:
    page = cycle.page_size
    held = [-(-cycle.reach(n) // page) * page - n for n in range(page, 6 * page)]
    assert most(cycle) == max(held)


@pytest.mark.parametrize("prompt", [200, 313, 314, 321, 322, 323])
def test_a_prompt_that_fills_the_pool_still_gets_the_token_of_its_prefill(prompt: int) -> None:
    """Upstream gives such a request capacity - prompt - 2 tokens in pages of one."""
    cycle, capacity = Cycle(3, 1, 4, 1, 1), 324
    without = max(0, capacity - prompt - 2)
    left = max(0, capacity - cycle.kept_free(prompt, capacity) - prompt - 2)
    assert min(1, without) <= left <= without
    if prompt + 2 + most(cycle) < capacity:
        assert left == without - most(cycle)
