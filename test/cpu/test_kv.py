"""What speculation costs in KV cache, on real servers with a pool that is just large enough."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from kit.decode_setups import STRICT
from kit.servers import ServerPool
from sglang.srt.spec_hardening.kv import capacity
from sglang_spec.bench.turns import Plan, Turn, play, reuse
from sglang_spec.client import Client
from sglang_spec.doctor.command import doctor
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS
from sglang_spec.server import Launch, Server, Speculation
from soak.__main__ import Foreign
from soak.planner import Planner
from soak.reference import Reference
from soak.settings import Settings
from soak.soak import Soak

ORACLE = Oracle(TINY)
CHECKS = {**STRICT, "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1"}
STEPS = 5
POOL = 324
PAGE, PAGED_POOL = 16, 320


def launch(
    pair: Pair, pool: int, page: int = 1, speculation: tuple[int, int, int] | None = (3, 1, 4)
) -> Launch:
    flags = ("--max-total-tokens", str(pool), "--page-size", str(page))
    if speculation is None:
        return Launch(pair.target, None, arguments=flags, environment=CHECKS)
    # A self-test needs more slots than these pools have.
    quick = (*flags, "--skip-server-warmup", "--skip-speculative-self-test")
    draft = Speculation(pair.draft, *speculation)
    return Launch(pair.target, draft, arguments=quick, environment=CHECKS)


@pytest.fixture(scope="module")
def small(servers: ServerPool, tiny: Pair) -> Server:
    """Chains of five; 324 slots."""
    return servers.server(launch(tiny, POOL, 1, (STEPS, 1, STEPS + 1)))


@pytest.fixture(scope="module")
def paged(servers: ServerPool, tiny: Pair) -> Server:
    """Chains of three; 20 pages of 16 slots."""
    return servers.server(launch(tiny, PAGED_POOL, PAGE))


def prompt(seed: int, length: int) -> list[int]:
    return [BOS, *(64 + (seed * 101 + 7 * i + i * i // 3) % 250 for i in range(length - 1))]


def kept(client: Client, other: int, length: int, new: int) -> int:
    """How much of a prompt of `other` tokens is still cached after another request has run."""
    client.flush_cache()
    first, second = prompt(1, other), prompt(2, length)
    client.generate(first, 1)
    answer = client.generate(second, new)
    assert list(answer.tokens) == ORACLE.greedy(second, new)
    return int(client.generate(first, 1).meta["cached_tokens"])


def test_a_cycle_evicts_no_more_than_it_writes(small: Server) -> None:
    """200 + 25 tokens: the last cycle begins at 218 and writes 6. Upstream wanted 12."""
    assert kept(Client(small.url), POOL - 224, 200, 25) == POOL - 224 - 1


def test_a_page_is_taken_without_one_more_evicted_for_each_request(paged: Server) -> None:
    """196 + 25 tokens end in the fourteenth page; the other six are what the first prompt has."""
    assert kept(Client(paged.url), 6 * PAGE + 1, 196, 25) == 6 * PAGE


@pytest.mark.parametrize("length", [200, 201, 203])
def test_a_request_as_long_as_the_pool_ends_by_its_length(small: Server, length: int) -> None:
    client = Client(small.url)
    client.flush_cache()
    answer = client.generate(prompt(3, length), 1000)
    assert answer.finish == "length"
    assert list(answer.tokens) == ORACLE.greedy(prompt(3, length), len(answer.tokens))
    # Of the pool all but one cycle, a slot for rounding and one for the token without KV.
    assert len(answer.tokens) == POOL - (STEPS + 1) - length - 2


def test_all_is_reused_that_can_be(small: Server) -> None:
    """As without speculation: all but the last token of a text, or of the same prompt."""
    client = Client(small.url)
    client.flush_cache()
    begun = prompt(4, 60)
    for new in (12, 13, 16, 1):
        answer = client.generate(begun, new)
        longer = [*begun, *answer.tokens, 99, 98]
        again = client.generate(longer, 19)
        assert again.meta["cached_tokens"] == len(begun) + new - 1
        assert list(again.tokens) == ORACLE.greedy(longer, 19)
        # Each cycle accepts all: the draft's KV of what is reused is whole.
        assert again.correct_drafts == (*[0] * STEPS, 3)
        assert client.generate(longer, 1).meta["cached_tokens"] == len(longer) - 1
        client.flush_cache()


def test_server_info_and_doctor_tell_the_cost(small: Server, tiny: Pair) -> None:
    (state,) = Client(small.url).get("/server_info").json()["internal_states"]
    told = state["kv_cost"]
    configs = [json.loads((p / "config.json").read_text()) for p in (tiny.target, tiny.draft)]
    expected = capacity.cost(*configs)
    assert told["tokens"] == told["tokens_without_speculation"] == POOL
    assert told["sized_by"] == "--max-total-tokens"
    each = told["bytes_per_token"]
    assert each["target"] == pytest.approx(expected.target, rel=0.01)
    assert each["draft"] == pytest.approx(expected.draft, rel=0.01)
    pools = sum(told["pools_gb"].values()) * 2**30
    assert pools == pytest.approx(expected.taken(POOL), rel=0.01, abs=2**20)
    assert told["reserve"] == {"slots_per_request": 6, "unknown_tokens": 0, "draft_tokens": 6}
    assert told["running_requests"] == {"cap": 16, "reason": "--max-running-requests 16"}

    done = CliRunner().invoke(doctor, ["kv", small.url])
    assert done.exit_code == 0, done.stderr
    assert f"{POOL} tokens of KV, sized by --max-total-tokens" in done.stdout
    assert "at most 16 requests run at once: --max-running-requests 16" in done.stdout


def played(servers: ServerPool, launch: Launch, plan: Plan) -> list[Turn]:
    client = servers.client(launch)
    client.flush_cache()
    return play(servers.server(launch).url, plan)


@pytest.mark.parametrize(
    ("page", "speculation"),
    [
        (16, (3, 1, 4)),
        pytest.param(1, (3, 1, 4), marks=pytest.mark.full),
        pytest.param(1, (4, 4, 16), marks=pytest.mark.full),
    ],
)
def test_64_conversations_reuse_as_much_as_without(
    servers: ServerPool, tiny: Pair, page: int, speculation: tuple[int, int, int]
) -> None:
    """The pool holds all of them and little more. The cases left out differ in flags alone."""
    plan = Plan(turns=2, opening=48, said=8, answered=9, at_once=16)
    pool = plan.tokens + 64 * page // 2 + 640
    without = played(servers, launch(tiny, pool, page, None), plan)
    speculating = played(servers, launch(tiny, pool, page, speculation), plan)
    assert [turn.answer.tokens for turn in speculating] == [t.answer.tokens for t in without]
    assert reuse(speculating) >= 0.95 * reuse(without) > 0.5
    steps = speculation[0]
    for turn in speculating:  # as after a fresh prefill: all that is drafted is right
        assert set(turn.answer.correct_drafts[:-1]) <= {0}
        assert len(turn.answer.correct_drafts) in (0, steps + 1)


@pytest.mark.full
@pytest.mark.parametrize("threshold", [0, 6])
@pytest.mark.parametrize("page", [1, 16])
def test_a_soak_loses_no_slot(
    servers: ServerPool, tmp_path: Path, page: int, threshold: int
) -> None:
    """Hundreds of requests each: aborts, retraction, crossings, every step checked by upstream."""
    settings = Settings(arguments=("--page-size", str(page)), threshold=threshold, pool=240)
    served, _ = settings.launches()
    server = servers.start(served, f"soak-page-{page}-{threshold}")
    try:
        server.wait_ready()
        subject = Foreign(server.url, server.pid)
        reference = Reference(settings.oracle(), None)
        soak = Soak(subject, reference, settings.rules(), settings.written(), timeout=600)
        limits = replace(settings.limits(), prompt=60, new=20)
        planner = Planner(5, limits, reference.answers)
        found = soak.run(planner, requests=600, size=24, seconds=3600, shrink_for=60)
    finally:
        server.stop()
    assert found.clean, (found.differences, found.leaks)
    assert found.requests == 600
    assert all(sample.kv_tokens == 0 for sample in found.samples)
    assert found.counts["retractions"] > 0, found.counts
    assert found.counts["aborted on their way"] > 0, found.counts
    assert found.counts["aborted past their end"] == 0
    assert (found.counts["switches of speculation"] > 0) == (threshold > 0), found.counts
