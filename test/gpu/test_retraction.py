"""EAGLE3 in a pool that runs full, under upstream's strict memory checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit import decode_checks, decode_setups, gpus
from kit.decode_setups import CHUNK, Setup
from kit.fleet import Fleet
from sglang_spec.client import Client
from sglang_spec.models.tiny import TINY, Oracle

SETUPS = [decode_setups.small_pool(backend) for backend in ("flashinfer", "triton", "fa3")]


@pytest.fixture(params=[gpus.with_backend(setup) for setup in SETUPS], scope="module")
def setup(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Setup]:
    found: Setup = request.param
    yield found
    fleet.done(found.launch())


@pytest.fixture
def client(setup: Setup, fleet: Fleet) -> Client:
    return fleet.client(setup.launch(), setup.name)


@pytest.fixture
def oracle() -> Oracle:
    return Oracle(TINY)


def test_retraction(client: Client, oracle: Oracle) -> None:
    decode_checks.retraction(client, oracle, groups=8, size=4, new=1000, pause=0.02)


def test_aborts(client: Client, oracle: Oracle) -> None:
    decode_checks.aborts(client, oracle, 10, pause=0.15)


def test_prefix_hit_and_chunked_prefill(client: Client, oracle: Oracle) -> None:
    decode_checks.prefix_hit_and_chunks(client, oracle, CHUNK)


def test_greedy_beside_sampled(client: Client, oracle: Oracle) -> None:
    decode_checks.mixed_sampling(client, oracle, 12)


def test_nothing_is_left(client: Client) -> None:
    """The checks at every step said nothing, and all KV is free once more."""
    client.flush_cache()
    info = client.get("/server_info").json()
    assert info["internal_states"][0]["memory_usage"]["token_capacity"] == decode_setups.SMALL_POOL
