"""Greedy requests drawn over all fields get the plain answers, and a seed repeats its answer, on
one GPU.

Seeds need `--enable-deterministic-inference`. There a verify draws by seed, length and place in its
window, so a seeded answer is the same each time, whatever else is asked, but not the plain
server's. Five servers, two of them at a time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.asking import Ask, ask
from kit.fidelity_gpu import CHAIN, REASONING, TREE, Setup
from kit.fidelity_servers import PROMPT, both
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan

pytest.importorskip("hypothesis", reason="requests are drawn with it: pip install hypothesis")
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks

GREEDY = replace(drawn_asks.ON_TINY, seeded=False)


@pytest.fixture(params=(CHAIN, TREE), ids=lambda setup: setup.name, scope="module")
def setup(request: pytest.FixtureRequest) -> Setup:
    found: Setup = request.param
    return found


@pytest.fixture
def spec(servers: ServerPool, pairs: dict[Plan, Pair], setup: Setup) -> Client:
    return servers.client(setup.launch(*REASONING, pairs=pairs))


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(drawn_asks.asks(GREEDY), min_size=16, max_size=48))
def test_drawn_requests_get_the_plain_answers(plain: Client, spec: Client, asks: list[Ask]) -> None:
    both(plain, spec, asks)


def test_a_seed_repeats_its_answer(servers: ServerPool, setup: Setup) -> None:
    client = servers.client(setup.launch(*REASONING[:4], "--enable-deterministic-inference"))
    common = {"max_new_tokens": 24, "ignore_eos": True, "temperature": 4.0}
    ways = ({}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.01}, {"frequency_penalty": 0.5})
    asks = [
        Ask(PROMPT, {**common, **way, "sampling_seed": seed}) for way in ways for seed in (1, 2, 3)
    ]
    together = [reply.tokens for reply in ask(client, asks)]
    assert len(set(together)) > len(asks) // 2  # the seeds differ
    assert [reply.tokens for reply in ask(client, asks)] == together
    assert [ask(client, [one])[0].tokens for one in asks] == together
