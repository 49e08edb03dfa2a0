"""TP 2 over two hosts: network namespaces with a cable between them, one rank in each.

On one host two nodes share a loopback and /dev/shm; here they share nothing but the cable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from kit import netns
from kit.fault_run import last_line
from kit.netns import Host
from kit.servers import ServerPool
from sglang_spec import host, process
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

pytestmark = [
    pytest.mark.skipif(host.device() != "cpu", reason="one rank a host needs two devices"),
    pytest.mark.skipif(bool(why := netns.why_none()), reason=why),
]

PROMPTS = [[0, *range(70, 110)], [0, *range(300, 200, -3)], [0, 77, 78]]
CYCLES = 6
NEW = 1 + CYCLES * 4  # the prefill's token, and cycles in which all of 3 drafts are right
PATIENCE = 600.0  # seconds; only a test that fails waits so long


@contextmanager
def serving(servers: ServerPool, tiny: Pair, **more: str) -> Iterator[list[tuple[Host, Server]]]:
    """Both nodes up, each in its host; `more` is environment."""
    with netns.two_hosts() as hosts:
        meet = f"{hosts[0].address}:{process.free_port()}"
        nodes = [
            Server(
                Launch(
                    tiny.target,
                    Speculation(tiny.draft),
                    arguments=(
                        *("--tp-size", "2", "--nnodes", "2", "--node-rank", str(rank)),
                        *("--dist-init-addr", meet, "--skip-server-warmup"),
                    ),
                    environment={
                        "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
                        "SGLANG_HOST_IP": one.address,
                        "GLOO_SOCKET_IFNAME": one.cable,
                        **more,
                    },
                ),
                servers.log(f"host-{rank}"),
                spawn=one.spawn(servers.zygote),
            )
            for rank, one in enumerate(hosts)
        ]
        try:
            for one, node in zip(hosts, nodes, strict=True):
                with one.inside():
                    node.wait_ready()
            yield list(zip(hosts, nodes, strict=True))
        finally:
            for node in nodes:
                node.stop()


def kill(node: Server) -> None:
    """All processes of a node at once, as when its host goes down in a hurry."""
    for one in process.session_members(node.pid):
        one.kill()


def ended(node: Server) -> int | None:
    deadline = time.monotonic() + PATIENCE
    while node.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return node.returncode


def check_it_ended_by_name(node: Server, rank: int, lost: Host) -> None:
    assert ended(node) == 1, node.log_tail()
    line = last_line(node.log)
    assert f"rank TP{rank} (pid " in line, line
    assert f"lost the node at {lost.address}, whose own log says why: " in line


def tokens(url: str) -> list[tuple[int, ...]]:
    client = Client(url)
    try:
        answers = client.generate_batch(PROMPTS, NEW, ignore_eos=True)
        assert all(answer.cycles in (0, CYCLES) for answer in answers)  # 0: no speculation
        return [answer.tokens for answer in answers]
    finally:
        client.close()


def test_equal_tokens_and_a_leader_whose_follower_was_killed(
    servers: ServerPool, tiny: Pair
) -> None:
    alone = tokens(servers.server(Launch(tiny.target)).url)
    with serving(servers, tiny) as [(leader, first), (follower, second)]:
        with leader.inside():
            assert tokens(first.url) == alone
        with follower.inside():
            for path in ("/health", "/ready"):
                assert httpx.get(second.url + path, timeout=600).status_code == 200
        kill(second)
        check_it_ended_by_name(first, 0, lost=follower)


@pytest.mark.full
def test_a_follower_whose_leader_was_killed_while_it_decodes(
    servers: ServerPool, tiny: Pair
) -> None:
    """A second start of two nodes."""
    with serving(servers, tiny) as [(leader, first), (_, second)]:
        with leader.inside():
            body = {"input_ids": [0, 70, 71], "sampling_params": {"max_new_tokens": 6000}}
            with (
                httpx.Client(timeout=600) as http,
                http.stream(
                    "POST", f"{first.url}/generate", json={**body, "stream": True}
                ) as reply,
            ):
                next(reply.iter_raw())
                kill(first)
        check_it_ended_by_name(second, 1, lost=leader)


@pytest.mark.full
def test_a_pulled_cable_ends_both(servers: ServerPool, tiny: Pair) -> None:
    """Slow, as nobody is told: each side waits for the limit."""
    with serving(servers, tiny, SGLANG_SPEC_PEER_TIMEOUT="4") as [one, other]:
        one[0].pull_the_cable()
        check_it_ended_by_name(one[1], 0, lost=other[0])
        check_it_ended_by_name(other[1], 1, lost=one[0])
