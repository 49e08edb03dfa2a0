"""Which prompt the self-test prefills in chunks, and that it knows whether it really did."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening.self_test import plan, states

PROMPTS = (tuple(range(24)),)


def _scheduler(**given: object) -> SimpleNamespace:
    plain = {
        "chunked_prefill_size": 2048,
        "device": "cpu",
        "page_size": 1,
        "truncation_align_size": None,
        "max_req_input_len": 4096,
        "max_total_num_tokens": 4096,
        "disable_radix_cache": False,
    }
    return SimpleNamespace(**(plain | given))


@pytest.mark.parametrize(
    ("given", "name", "chunk", "tokens"),
    [
        ({"chunked_prefill_size": 64}, "chunked prefill", 64, 72),
        ({"chunked_prefill_size": 1016}, "chunked prefill", 1016, 1024),
        ({}, "chunked prefill in chunks of 64", 64, 136),
        ({"page_size": 48}, "chunked prefill in chunks of 96", 96, 200),
        (
            {"page_size": 16, "truncation_align_size": 12},
            "chunked prefill in chunks of 96",
            96,
            200,
        ),
        ({"device": "cuda"}, "chunked prefill", 2048, 2056),
        (
            {"device": "cuda", "chunked_prefill_size": 32768},
            "chunked prefill in chunks of 1024",
            1024,
            2056,
        ),
        (
            {"device": "cuda", "chunked_prefill_size": 8192},  # longer than there is room for
            "chunked prefill in chunks of 1024",
            1024,
            2056,
        ),
    ],
    ids=str,
)
def test_the_servers_chunks_or_small_ones_by_name(
    given: dict[str, object], name: str, chunk: int, tokens: int
) -> None:
    (case,), left_out = plan._chunked(_scheduler(**given), PROMPTS)
    assert (case.name, case.chunk, len(case.prompts[0])) == (name, chunk, tokens)
    assert left_out == []


@pytest.mark.parametrize("room", ["max_req_input_len", "max_total_num_tokens"])
def test_without_room_it_is_said_to_be_left_out(room: str) -> None:
    found, left_out = plan._chunked(_scheduler(**{room: 136 + 2 * plan.NEW_TOKENS - 1}), PROMPTS)
    assert found == [] and left_out == ["chunked prefill (no room for a prompt of 136 tokens)"]
    assert plan._chunked(_scheduler(**{room: 136 + 2 * plan.NEW_TOKENS}), PROMPTS)[0]


def test_a_server_without_chunks_has_no_such_mode() -> None:
    assert plan._chunked(_scheduler(chunked_prefill_size=None), PROMPTS) == ([], [])


def test_the_servers_chunk_is_put_back() -> None:
    scheduler = _scheduler()
    with states.in_chunks(scheduler, 64):
        assert scheduler.chunked_prefill_size == 64
    assert scheduler.chunked_prefill_size == 2048
    with states.in_chunks(scheduler, 0):
        assert scheduler.chunked_prefill_size == 2048
    with pytest.raises(RuntimeError), states.in_chunks(scheduler, 64):
        raise RuntimeError
    assert scheduler.chunked_prefill_size == 2048


@pytest.mark.parametrize(
    ("page", "tokens"), [(1, 24), (16, 24), (22, 24), (23, 48), (64, 130), (128, 258)]
)
def test_the_prompt_of_the_prefix_hit_is_longer_than_a_page(page: int, tokens: int) -> None:
    """Only whole pages are found again; the first run of the prompt leaves them."""
    (first, again), left_out = plan._one(_scheduler(page_size=page), PROMPTS)
    assert (first.name, again.name) == ("greedy", "prefix hit") and left_out == []
    assert first.prompts == again.prompts and len(again.prompts[0]) == tokens > page + 1


def test_a_page_for_which_there_is_no_room_is_said_to_be_left_out() -> None:
    full = 130 + 2 * plan.NEW_TOKENS
    for room in ("max_req_input_len", "max_total_num_tokens"):
        found, left_out = plan._one(_scheduler(page_size=64, **{room: full - 1}), PROMPTS)
        assert [case.name for case in found] == ["greedy"]
        assert left_out == ["prefix hit (no room for a prompt of 130 tokens)"]
        assert len(plan._one(_scheduler(page_size=64, **{room: full}), PROMPTS)[0]) == 2


def test_a_server_without_a_cache_has_no_prefix_to_hit() -> None:
    found, left_out = plan._one(_scheduler(disable_radix_cache=True), PROMPTS)
    assert [case.name for case in found] == ["greedy"] and left_out == []
