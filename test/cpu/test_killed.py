"""A server over two ranks that is killed leaves no process, no shared memory and no port."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable

import httpx
import pytest
from kit.broken_server import run_broken
from kit.servers import ServerPool, spawner
from kit.traces import NOTHING, Traces
from sglang_spec import process
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

PROMPT = [0, *range(70, 110)]
PATIENCE = 300.0  # seconds; only what is left behind is waited for so long


def wait(what: str, condition: Callable[[], bool], timeout: float = 600.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {timeout:.0f} s"
        time.sleep(0.05)


def log_of(server: Server) -> str:
    return server.log.read_text(errors="replace") if server.log.exists() else ""


def has_workers(server: Server) -> None:
    """Return once both ranks are forked; a single child may be a tool that the parent asks."""
    wait("worker", lambda: len(process.session_members(server.pid)) > 2)


def logged(text: str) -> Callable[[Server], None]:
    """Wait until both ranks have logged a line that matches."""

    def reached(server: Server) -> None:
        def both() -> bool:
            return all(re.search(f"TP{rank}\\] .*{text}", log_of(server)) for rank in range(2))

        wait(f"{text!r} of both ranks in {server.log}", both)

    return reached


def decodes(server: Server) -> None:
    """Return in the middle of a long answer."""
    server.wait_ready()

    def ask() -> None:
        client = Client(server.url)
        try:
            client.generate(PROMPT, 2000, ignore_eos=True)
        except httpx.HTTPError:
            pass  # that is what the kill does to it
        finally:
            client.close()

    threading.Thread(target=ask, daemon=True).start()
    wait("decode batch", lambda: "Decode batch" in log_of(server))


STAGES: dict[str, Callable[[Server], None]] = {
    "workers exist": has_workers,
    "groups are being made": logged("Init parallel begin"),
    "weights are being loaded": logged("Load weight begin"),
    "the cache is there": logged("KV Cache is allocated"),
    "it decodes": decodes,
}


def over_two_ranks(tiny: Pair) -> Launch:
    arguments = ("--tp-size", "2", "--decode-log-interval", "1", "--skip-speculative-self-test")
    return Launch(tiny.target, Speculation(tiny.draft), arguments=arguments)


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_left_behind(servers: ServerPool, tiny: Pair, stage: str) -> None:
    server = servers.start(over_two_ranks(tiny), "killed")
    try:
        STAGES[stage](server)
        traces = Traces.of(server.pid)
        assert len(traces.pids) > 2
        os.kill(server.pid, signal.SIGKILL)
        assert traces.left_after(PATIENCE) == NOTHING
        # A worker forked after the look is found by its session.
        assert Traces.of(server.pid).left_after(PATIENCE) == NOTHING
    finally:
        server.stop()


def test_a_stopped_server_leaves_no_shared_memory(servers: ServerPool, tiny: Pair) -> None:
    """SIGTERM is what every supervisor sends; upstream leaves 25 MB a time."""
    server = servers.start(over_two_ranks(tiny), "stopped")
    try:
        server.wait_ready()
        traces = Traces.of(server.pid)
        assert traces.segments and server.port in traces.ports
        os.kill(server.pid, signal.SIGTERM)
        assert traces.left_after(PATIENCE) == NOTHING
    finally:
        server.stop()


def test_a_taken_port_is_refused_before_anything_is_loaded(servers: ServerPool, tiny: Pair) -> None:
    """Upstream loads it all, and then waits for minutes behind a bind that failed."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        launch = Launch(
            tiny.target, Speculation(tiny.draft), environment={"SGLANG_WAIT_PORT_TIMEOUT": "0"}
        )
        log = servers.log("taken-port")
        with Server(launch, log, port, spawn=spawner(servers.zygote)) as server:
            wait("end", lambda: server.returncode is not None)
            assert server.returncode == 1, log
            assert not process.session_members(server.pid)
    text = log_of(server)
    assert "Load weight begin" not in text
    said = (
        rf"PortError: .*host '127.0.0.1', port {port} \(--port\): process {os.getpid()} .* has it"
    )
    assert re.search(said, text.splitlines()[-1]), log


def test_a_port_that_is_lost_while_the_server_loads_ends_it(
    servers: ServerPool, tiny: Pair
) -> None:
    outcome = run_broken(servers.zygote, tiny, "port lm_head")
    assert outcome.code == 1 and not outcome.greens and not outcome.left, outcome
    said = r"cannot listen on host '127.0.0.1', port \d+ \(--port\): another process has it"
    assert re.search(said, outcome.line), outcome
