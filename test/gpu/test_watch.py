"""The watch on one GPU: phases by events under graphs and overlap, counters across switches.

The same checks as on the CPU, where neither exists. Two servers, about two minutes on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.servers import ServerPool
from kit.watch_checks import (
    FLAGS,
    STEPS,
    check_counts_are_the_requests,
    check_phases_fill_the_cycle,
    check_switches_and_time_off,
)
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

COMMON = (
    *("--mem-fraction-static", "0.15", "--max-total-tokens", "65536"),
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "32"),
    *("--context-length", "2048", "--attention-backend", "triton"),
)
SETUPS = {"graphs": (), "eager": ("--disable-cuda-graph", "--disable-overlap-schedule")}


@pytest.fixture(params=SETUPS, scope="module")
def server(request: pytest.FixtureRequest, servers: ServerPool, tiny: Pair) -> Iterator[Server]:
    speculation = Speculation(tiny.draft, STEPS, 1, STEPS + 1)
    flags = (*FLAGS, *COMMON, *SETUPS[request.param])
    launch = Launch(tiny.target, speculation, arguments=flags)
    with servers.start(launch, f"watch-{request.param}") as started:
        yield started.wait_ready(600)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.close()


def test_phases_fill_the_cycle(server: Server, client: Client) -> None:
    """A stream's pieces come through three processes, and a cycle of this pair takes about 1 ms."""
    check_phases_fill_the_cycle(client, server.url, within=0.15)


def test_what_is_counted_is_what_the_requests_say(client: Client) -> None:
    check_counts_are_the_requests(client)


def test_switches_and_the_time_off_are_counted(client: Client) -> None:
    check_switches_and_time_off(client)
