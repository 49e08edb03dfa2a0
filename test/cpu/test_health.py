"""Health of a running server: cheap while it decodes, red with a reason when a verify hangs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator

import grpc
import httpx
import pytest
from kit.fault_run import PROBES
from kit.servers import ServerPool
from sglang_spec import process
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

PROBED = 1000
WINDOW = 4  # seconds, of a probe
PATIENCE = 300.0  # seconds; only a test that fails waits so long


def _prefills(server: Server) -> int:
    return server.log.read_text(errors="replace").count("Prefill batch")


@pytest.fixture(scope="module")
def launch(tiny: Pair) -> Launch:
    environment = {"SGLANG_HEALTH_CHECK_TIMEOUT": str(WINDOW)}
    arguments = ("--skip-server-warmup",)
    return Launch(
        tiny.target, Speculation(tiny.draft), arguments=arguments, environment=environment
    )


def test_1000_probes_under_load_cause_no_prefill(servers: ServerPool, tiny: Pair) -> None:
    """With the window that is the default: within it some verify returns on any host."""
    server = servers.server(Launch(tiny.target, Speculation(tiny.draft)))
    done = threading.Event()

    def load() -> None:
        own = Client(server.url)
        while not done.is_set():
            own.generate([0, *range(70, 90)], 400, ignore_eos=True)
        own.close()

    worker = threading.Thread(target=load)
    worker.start()
    try:
        time.sleep(1)
        # In this order, and the other one at the end, a request of the load that is answered or
        # prefilled between two looks is no prefill too many.
        asked, before = _requests(server), _prefills(server)
        took = []
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
            for number in range(PROBED):
                begun = time.perf_counter()
                reply = http.get(PROBES[number % len(PROBES)])
                took.append(time.perf_counter() - begun)
                assert reply.status_code == 200, reply.text
        after = _prefills(server)
        loads = _requests(server) - asked
    finally:
        done.set()
        worker.join()
    assert after - before <= loads + 1, "a probe caused a prefill"
    cuts = statistics.quantiles(took, n=100)
    print(f"{PROBED} probes under load: p50 {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms")


def _requests(server: Server) -> int:
    """Requests of the load that were answered, as the front end's log counts them."""
    return server.log.read_text(errors="replace").count("POST /generate")


def test_an_idle_server_decodes_for_a_probe_once_a_window(
    servers: ServerPool, launch: Launch
) -> None:
    client, server = servers.client(launch), servers.server(launch)

    def probed(times: int) -> int:
        """Prefills that so many probes cause."""
        before = _prefills(server)
        for _ in range(times):
            assert client.get("/health").status_code == 200
        return _prefills(server) - before

    for _ in range(20):  # until the host lets five probes through within a window
        begun = time.monotonic()
        client.generate([0, 70, 71], 6, ignore_eos=True)
        none = probed(1)  # it decoded a moment ago
        if time.monotonic() - begun > WINDOW:
            continue
        assert none == 0
        time.sleep(WINDOW + 1)
        begun = time.monotonic()
        assert probed(1) == 1
        none = probed(5)  # the probe's own decode counts
        if time.monotonic() - begun > WINDOW:
            continue
        assert none == 0
        return
    raise AssertionError("each probe takes longer than the window")


@pytest.fixture
def hanging(servers: ServerPool, launch: Launch) -> Iterator[Server]:
    """A verify of it hangs as soon as it serves. The time it may take is that of a probe, as no
    flag of the patch is given: without the patch this server starts too.
    """
    environment = {
        "SGLANG_HEALTH_CHECK_TIMEOUT": "12",  # from the last verify of its start to the first probe
        "SGLANG_TEST_MODE": "1",
        "SGLANG_SPEC_FAULT": "serving_verify:hang",
    }
    arguments = (*launch.arguments, "--grpc-port", str(process.free_port()))
    own = Launch(launch.model, launch.speculation, "bfloat16", arguments, environment)
    with servers.start(own, "hang") as server:
        yield server.wait_ready()


def _grpc_says_healthy(server: Server) -> bool:
    """The native gRPC server's answer: a message with one boolean field."""
    with grpc.insecure_channel(f"127.0.0.1:{server.launch.arguments[-1]}") as channel:
        ask = channel.unary_unary("/sglang.runtime.v1.SglangService/HealthCheck")
        reply: bytes = ask(b"", timeout=PATIENCE, wait_for_ready=True)
    return reply == b"\x08\x01"


def test_a_verify_that_hangs_turns_every_probe_red(hanging: Server) -> None:
    def ask() -> None:
        try:
            httpx.post(
                f"{hanging.url}/generate",
                json={"input_ids": [0, 70, 71], "sampling_params": {"max_new_tokens": 8}},
                timeout=PATIENCE,
            )
        except httpx.HTTPError:
            return  # the server is stopped

    assert _grpc_says_healthy(hanging)
    threading.Thread(target=ask, daemon=True).start()
    begun = time.monotonic()
    while _grpc_says_healthy(hanging):  # first, so that no other probe has told it
        assert time.monotonic() - begun < PATIENCE, "green, though a verify hangs"
        time.sleep(0.1)
    for _ in range(5):
        assert httpx.get(f"{hanging.url}/ping", timeout=PATIENCE).status_code == 503
        assert not _grpc_says_healthy(hanging)
        for path in PROBES:
            reply = httpx.get(hanging.url + path, timeout=PATIENCE)
            assert reply.status_code == 503
            assert "rank TP0: no verify has returned" in reply.text and "verify" in reply.text
        time.sleep(0.3)
