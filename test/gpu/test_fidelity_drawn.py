"""Requests drawn over all fields get the plain answers, sampled ones by their seeds, on one GPU.

Seeds need `--enable-deterministic-inference`, so these servers have it; `test_fidelity_ends.py` is
without it. Three servers.
"""

from __future__ import annotations

import pytest
from kit import thinking
from kit.fidelity_gpu import CHAIN, PLAIN, TREE, thinking_pairs
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan

pytest.importorskip("hypothesis", reason="requests are drawn with it: pip install hypothesis")
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks, ending_checks
from kit.asking import Ask
from kit.fidelity_servers import both

FLAGS = (
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "16"),
    *("--enable-deterministic-inference", *thinking.PARSER),
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[Plan, Pair]:
    return thinking_pairs(tmp_path_factory.mktemp("thinking"))


@pytest.fixture
def plain(servers: ServerPool, pairs: dict[Plan, Pair]) -> Client:
    return servers.client(PLAIN.launch(*FLAGS, pairs=pairs))


@pytest.fixture(params=(CHAIN, TREE), ids=lambda setup: setup.name, scope="module")
def spec(request: pytest.FixtureRequest, servers: ServerPool, pairs: dict[Plan, Pair]) -> Client:
    return servers.client(request.param.launch(*FLAGS, pairs=pairs))


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(drawn_asks.asks(), min_size=16, max_size=48))
def test_drawn_requests_get_the_plain_answers(plain: Client, spec: Client, asks: list[Ask]) -> None:
    both(plain, spec, asks)


def test_sampled_answers_keep_to_their_grammar(plain: Client, spec: Client) -> None:
    ending_checks.check_sampled_answers_keep_to_their_grammar(plain, spec)
