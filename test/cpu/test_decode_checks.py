"""The checks of `test/gpu/test_decode.py` on the CPU, in a pool too small for what is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit import decode_checks, decode_setups
from kit.decode_setups import Setup
from kit.fleet import Fleet
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle

SETUP = Setup(
    "small-pool",
    plan=TINY_HALF,
    flags=decode_setups.OVERCOMMIT,
    pool=1536,
    running=16,
    environment=decode_setups.STRICT,
)


@pytest.fixture(scope="module")
def client(servers: ServerPool) -> Iterator[Client]:
    fleet = Fleet(servers)
    fleet.expect([(SETUP.name, SETUP.launch())])
    try:
        yield fleet.client(SETUP.launch())
    finally:
        fleet.close()


@pytest.fixture
def oracle() -> Oracle:
    return Oracle(SETUP.plan)


def test_a_batch(client: Client, oracle: Oracle) -> None:
    decode_checks.batch(client, oracle, 4, 24)


def test_accept_lengths(client: Client, oracle: Oracle) -> None:
    decode_checks.accept_lengths(client, oracle, SETUP.steps)


def test_prefix_hit_and_chunked_prefill(client: Client, oracle: Oracle) -> None:
    decode_checks.prefix_hit_and_chunks(client, oracle, decode_setups.CHUNK)


def test_greedy_beside_sampled(client: Client, oracle: Oracle) -> None:
    decode_checks.mixed_sampling(client, oracle, 6, 24)


def test_requests_that_come_and_go(client: Client, oracle: Oracle) -> None:
    decode_checks.staggered(client, oracle, 12, 6)


def test_aborts(client: Client, oracle: Oracle) -> None:
    decode_checks.aborts(client, oracle, 6, 60)


def test_retraction(client: Client, oracle: Oracle) -> None:
    decode_checks.retraction(client, oracle, 4, 4, 120, 0.3)


def test_the_checks_find_what_differs(client: Client) -> None:
    """Held against the other pair's oracle, whose draft knows every token."""
    with pytest.raises(AssertionError):
        decode_checks.accept_lengths(client, Oracle(TINY), SETUP.steps)
    other = Oracle(decode_setups.Plan(seed=1))
    for check in (
        lambda: decode_checks.batch(client, other, 2, 8),
        lambda: decode_checks.mixed_sampling(client, other, 4, 8),
        lambda: decode_checks.staggered(client, other, 2, 2),
        lambda: decode_checks.aborts(client, other, 2, 8),
        lambda: decode_checks.prefix_hit_and_chunks(client, other, decode_setups.CHUNK),
    ):
        with pytest.raises(AssertionError):
            check()
