"""Greedy EAGLE3 on one GPU equals greedy decoding without it, in every way worth a server.

The servers start ahead of their tests (`kit.fleet`), so the whole file takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit import decode_checks, decode_setups, gpus
from kit.decode_setups import CHUNK, Setup
from kit.fleet import Fleet
from sglang_spec.client import Client
from sglang_spec.models.tiny import Oracle

SETUPS = [
    *decode_setups.of_backend("flashinfer"),  # first: its kernels take longest to compile
    *decode_setups.of_backend("triton"),
    *decode_setups.once("triton"),
    Setup("fa3", "fa3"),
    Setup("trtllm_mha", "trtllm_mha"),
]


@pytest.fixture(params=[gpus.with_backend(setup) for setup in SETUPS], scope="module")
def setup(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Setup]:
    found: Setup = request.param
    yield found
    fleet.done(found.launch())


@pytest.fixture
def client(setup: Setup, fleet: Fleet) -> Client:
    return fleet.client(setup.launch(), setup.name)


@pytest.fixture
def oracle(setup: Setup) -> Oracle:
    assert setup.plan is not None
    return Oracle(setup.plan)


# 128 is the largest captured graph; 150 runs eagerly, with more rows than any graph has.
@pytest.mark.parametrize("batch", [1, 3, 16, 128, 150])
def test_tokens_are_the_oracles(client: Client, oracle: Oracle, batch: int) -> None:
    decode_checks.batch(client, oracle, batch)


def test_accept_lengths_are_the_oracles(client: Client, setup: Setup, oracle: Oracle) -> None:
    if setup.topk == 1:
        decode_checks.accept_lengths(client, oracle, setup.steps)
    else:
        decode_checks.mean_accept_length(client, setup.steps + 0.5)


def test_prefix_hit_and_chunked_prefill(client: Client, oracle: Oracle) -> None:
    decode_checks.prefix_hit_and_chunks(client, oracle, CHUNK)


def test_greedy_beside_sampled(client: Client, oracle: Oracle) -> None:
    decode_checks.mixed_sampling(client, oracle, 12)


def test_requests_that_come_and_go(client: Client, oracle: Oracle) -> None:
    decode_checks.staggered(client, oracle, 96, 48)


def test_aborts(client: Client, oracle: Oracle) -> None:
    decode_checks.aborts(client, oracle, 10, pause=0.15)


def test_self_test_proved_the_server(setup: Setup, fleet: Fleet) -> None:
    """What readiness waited for, in the server's own words."""
    log = fleet.server(setup.launch(), setup.name).log.read_text(errors="replace")
    assert "speculative self-test: proven" in log
