"""A node without a front end answers for its own ranks, and ends with them: two nodes, one host."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from kit.fault_run import PROBES, last_line
from kit.servers import ServerPool
from sglang_spec import host, process
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

pytestmark = pytest.mark.skipif(host.device() != "cpu", reason="one rank a node needs two devices")


@contextmanager
def _nodes(servers: ServerPool, tiny: Pair, fault: str = "") -> Iterator[tuple[Server, Server]]:
    """Both up: node 0 with rank TP0 and the front end, node 1 with rank TP1."""
    address = f"127.0.0.1:{process.free_port()}"
    environment = {
        "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
        "SGLANG_HEALTH_CHECK_TIMEOUT": "600",  # so that no probe asks for a verify by itself
    }
    if fault:
        environment |= {"SGLANG_TEST_MODE": "1", "SGLANG_SPEC_FAULT": fault}
    first, second = (
        servers.start(
            Launch(
                tiny.target,
                Speculation(tiny.draft),
                arguments=(
                    *("--tp-size", "2", "--nnodes", "2", "--node-rank", str(node)),
                    *("--dist-init-addr", address, "--skip-server-warmup"),
                    *("--speculative-verify-timeout", "2"),
                ),
                environment=environment,
            ),
            f"node-{node}",
        )
        for node in (0, 1)
    )
    with first, second:
        yield first.wait_ready(), second.wait_ready()


def _probes(server: Server) -> set[tuple[int, str]]:
    replies = [httpx.get(server.url + path, timeout=120) for path in PROBES]
    return {(reply.status_code, reply.text.partition(":")[0]) for reply in replies}


def _ask(server: Server) -> threading.Thread:
    """Send a request and go on: it hangs, or its node goes."""

    def ask() -> None:
        body = {"input_ids": [0, 70, 71], "sampling_params": {"max_new_tokens": 8}}
        with suppress(httpx.HTTPError):
            httpx.post(f"{server.url}/generate", json=body, timeout=600)

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    return asker


def _ended(server: Server) -> int | None:
    deadline = time.monotonic() + 300
    while server.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return server.returncode


def test_each_node_names_its_own_rank_while_a_verify_hangs(servers: ServerPool, tiny: Pair) -> None:
    with _nodes(servers, tiny, "serving_verify:hang:1") as (first, second):
        assert _probes(first) == _probes(second) == {(200, "")}
        _ask(first)
        deadline = time.monotonic() + 300
        red = {(503, "rank TP0")}, {(503, "rank TP1")}
        while (seen := (_probes(first), _probes(second))) != red and time.monotonic() < deadline:
            time.sleep(0.2)
        assert seen == red


@pytest.mark.parametrize("kind", ["kill", pytest.param("raise", marks=pytest.mark.full)])
def test_a_node_whose_rank_died_ends_by_name(servers: ServerPool, tiny: Pair, kind: str) -> None:
    """Upstream's node logs "terminated with -9" and ends with exit code 0."""
    with _nodes(servers, tiny, f"serving_verify:{kind}:1") as (first, second):
        _ask(first)
        assert _ended(second) == 1
        assert "rank TP1" in last_line(second.log), second.log
        assert "stage serving (verify)" in last_line(second.log)
        assert _ended(first) == 1


@pytest.mark.full
def test_a_node_that_was_asked_to_leave_ends_with_0(servers: ServerPool, tiny: Pair) -> None:
    """A third start of two nodes, for what no fault is needed to see."""
    with _nodes(servers, tiny) as (first, second):
        _ask(first).join()  # SGLang's handler of SIGTERM is there from the first request on
        os.kill(first.pid, signal.SIGTERM)
        assert _ended(second) == 0
