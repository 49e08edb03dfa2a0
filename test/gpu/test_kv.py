"""Slots for what one cycle can write, under overlap and with graphs: with one too few it would be
another request's KV, so tokens and accept lengths are exact or wrong.

The same conversations run on the CPU (`test/cpu/test_kv.py`), where there is no overlap and where
draft trees have pages of one token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kit import decode_checks, gpus
from kit.decode_setups import STRICT, TREE, Setup
from kit.fleet import Fleet
from sglang_spec.bench.turns import Plan, play, reuse
from sglang_spec.models.tiny import TINY, Oracle

CHECKS = {**STRICT, "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1"}
PLAN = Plan(turns=4, at_once=32)


def of(name: str, page: int, speculation: tuple[int, int, int], *flags: str) -> Setup:
    """A pool that holds all conversations, with as much again as the running ones may need."""
    return Setup(
        f"kv-{name}",
        "triton",
        ("--page-size", str(page), *flags),
        speculation=speculation,
        pool=(PLAN.tokens + 64 * page + 32 * 8 * max(page, 16)) // page * page,
        largest_graph=32,
        running=32,
        environment=CHECKS,
    )


SETUPS = [
    of("chain", 1, (3, 1, 4)),
    of("chain-page-16", 16, (3, 1, 4)),
    of("chain-page-64", 64, (3, 1, 4)),
    of("tree", 1, TREE),
    of("tree-page-16", 16, TREE),
    of("tree-page-64", 64, (5, 4, 16)),
    of("tree-page-16-no-overlap", 16, TREE, "--disable-overlap-schedule"),
]


@pytest.fixture(params=[gpus.with_backend(setup) for setup in SETUPS], scope="module")
def setup(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Setup]:
    found: Setup = request.param
    yield found
    fleet.done(found.launch())


def test_conversations_reuse_as_much_as_without(setup: Setup, fleet: Fleet) -> None:
    launches = (setup.launch(), replace(setup, environment={}, flags=setup.flags[:2]).plain())
    played = []
    for launch, name in zip(launches, (setup.name, f"{setup.name}-off"), strict=True):
        fleet.client(launch, name).flush_cache()
        played.append(play(fleet.server(launch, name).url, PLAN))
    fleet.done(launches[1])
    on, off = played
    assert [turn.answer.tokens for turn in on] == [turn.answer.tokens for turn in off]
    assert reuse(on) >= 0.95 * reuse(off) > 0.5
    for turn in on:  # as after a fresh prefill: all that is drafted is right
        assert set(turn.answer.correct_drafts[:-1]) <= {0}


def test_aborts(setup: Setup, fleet: Fleet) -> None:
    client = fleet.client(setup.launch(), setup.name)
    decode_checks.aborts(client, Oracle(TINY), 10, pause=0.15)


def test_a_request_as_long_as_the_pool_ends_by_its_length(fleet: Fleet) -> None:
    """Under overlap a cycle is launched past the last one."""
    quick = ("--skip-server-warmup", "--skip-speculative-self-test")
    launch = replace(SETUPS[0], name="kv-short", pool=1024, flags=quick).launch()
    prompt = [0, *range(64, 264)]
    answer = fleet.client(launch, "kv-short").generate(prompt, 1500)
    assert answer.finish == "length" and len(answer.tokens) > 780
    assert list(answer.tokens) == Oracle(TINY).greedy(prompt, len(answer.tokens))
    fleet.done(launch)
