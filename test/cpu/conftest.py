"""Servers that `test_fidelity*.py` share."""

from __future__ import annotations

import pytest
from kit import thinking
from kit.fidelity_servers import MODES, PLAIN, SLOW, adaptive_flags, launch
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Plan
from sglang_spec.server import Launch


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[Plan, Pair]:
    """Every server here has a reasoning parser, which changes nothing unless a request reasons."""
    folder = tmp_path_factory.mktemp("thinking")
    plans = enumerate((TINY, TINY_HALF))
    return {plan: thinking.thinking(tiny_pair(plan), folder / str(n)) for n, plan in plans}


@pytest.fixture
def plain(servers: ServerPool, pairs: dict[Plan, Pair]) -> Client:
    """Asked for by each test anew: with many modes the pool stops what was not asked for lately."""
    return servers.client(Launch(pairs[TINY].target, dtype="float32", arguments=PLAIN))


@pytest.fixture(
    scope="module",
    params=[pytest.param(m, marks=pytest.mark.full) if m in SLOW else m for m in MODES],
)
def mode(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def spec(
    servers: ServerPool,
    pairs: dict[Plan, Pair],
    mode: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Client:
    more: tuple[str, ...] = ()
    if mode == "adaptive":
        more = adaptive_flags(tmp_path_factory.mktemp("adaptive"))
    return servers.client(launch(pairs, mode, *more))
