"""A server looks at its port before it loads a model, and does not outlive the loss of it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
import uvloop
from sglang.srt.arg_groups import overrides
from sglang.srt.spec_hardening import http_port, record

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(http_port.PATIENCE, "0")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def _socket(host: str, listen: bool = True, reuse_port: bool = False) -> Any:
    one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind((host, 0))
    if listen:
        one.listen(1)
    return one


@pytest.fixture
def taken() -> Iterator[int]:
    with _socket("127.0.0.1") as one:
        yield one.getsockname()[1]


def test_a_taken_port_is_refused_with_all_that_helps(taken: int) -> None:
    with pytest.raises(http_port.PortError) as refused:
        http_port.check("127.0.0.1", taken, "--port")
    for said in ("'127.0.0.1'", f"port {taken}", "--port", f"process {os.getpid()}", "stop that"):
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("no-such-host.invalid", "no such host"),
        ("192.0.2.1", "no such address"),  # a network for examples
    ],
)
def test_a_host_that_is_not_here_is_refused_by_name(host: str, says: str) -> None:
    with pytest.raises(http_port.PortError, match=f"{says}.*--host"):
        http_port.check(host, 30000, "--port")


def test_a_port_that_this_user_may_not_have_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bind(*_args: object) -> None:
        raise PermissionError(13, "Permission denied")

    refusing = type("Refusing", (socket.socket,), {"bind": bind})
    monkeypatch.setattr(http_port.socket, "socket", refusing)
    with pytest.raises(http_port.PortError, match=r"not allowed for this user.* --port of 1024"):
        http_port.check("127.0.0.1", 80, "--port")


def test_a_port_that_is_let_go_in_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server that is being stopped does."""
    monkeypatch.setenv(http_port.PATIENCE, "600")
    one = _socket("127.0.0.1")
    port = one.getsockname()[1]
    threading.Timer(0.3, one.close).start()
    http_port.check("127.0.0.1", port, "--port")
    assert one.fileno() == -1


# Who holds the port (host, listens), and where a server is to listen.
HOLDERS = [
    None,
    ("127.0.0.1", True),
    ("127.0.0.1", False),
    ("127.0.0.2", True),
    ("0.0.0.0", True),
    ("::1", True),
    ("::", True),
]
HOSTS = ["127.0.0.1", "0.0.0.0", "localhost", "", "::1", "::"]


def _uvicorn_can(host: str, port: int) -> bool:
    """Whether the server that upstream runs listens there."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    async def start() -> bool:
        config = uvicorn.Config(
            app, host=host, port=port, lifespan="off", log_level="critical", loop="uvloop"
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        try:
            await server.startup()
        except SystemExit:
            return False
        for one in server.servers:
            one.close()
        return True

    loop = uvloop.new_event_loop()
    try:
        return bool(loop.run_until_complete(start()))
    finally:
        loop.close()


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("holder", HOLDERS, ids=str)
def test_it_refuses_what_upstreams_server_could_not_bind_and_no_more(
    holder: tuple[str, bool] | None, host: str
) -> None:
    if ":" in host + str(holder) and not _has_ipv6():
        pytest.skip("no IPv6 here")
    with _socket(*holder) if holder else _socket("127.0.0.1", False) as one:
        port = one.getsockname()[1]
        if holder is None:
            one.close()
        can = _uvicorn_can(host, port)
        refused = http_port._try(host, port)
    assert (refused is None) is can, refused


def test_port_0_is_any_port() -> None:
    http_port.check("127.0.0.1", 0, "--port")


def test_a_connection_that_lingers_is_no_listener() -> None:
    """The side that closed first keeps the port in TIME_WAIT for a minute."""
    with _socket("127.0.0.1") as one:
        port = one.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = one.accept()
        served.close()
        client.close()
    http_port.check("127.0.0.1", port, "--port")


def test_a_shared_port_is_free_for_a_server_that_shares_it() -> None:
    with _socket("127.0.0.1", reuse_port=True) as one:
        port = one.getsockname()[1]
        http_port.check("127.0.0.1", port, "--port", shared=True)
        with pytest.raises(http_port.PortError):
            http_port.check("127.0.0.1", port, "--port")


def _arguments(port: int, **given: Any) -> SimpleNamespace:
    known = {
        "host": "127.0.0.1",
        "port": port,
        "node_rank": 0,
        "smg_grpc_mode": False,
        "grpc_mode": False,
        "enable_http2": False,
        "grpc_port": None,
    }
    return SimpleNamespace(**{**known, **given})


@pytest.fixture
def _as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overrides, "resolving_view", lambda given: given)


@pytest.mark.usefixtures("_as_given")
@pytest.mark.parametrize("other", [{"node_rank": 1}, {"smg_grpc_mode": True}, {"grpc_mode": True}])
def test_only_this_servers_own_listener_is_looked_at(taken: int, other: dict[str, Any]) -> None:
    http_port.check_launch(_arguments(taken, **other))
    with pytest.raises(http_port.PortError):
        http_port.check_launch(_arguments(taken))


@pytest.mark.usefixtures("_as_given")
def test_the_port_of_the_native_grpc_server_is_looked_at(taken: int) -> None:
    with pytest.raises(http_port.PortError, match=r"\(--grpc-port\)"):
        http_port.check_launch(_arguments(0, grpc_port=taken))


@pytest.mark.usefixtures("_as_given")
def test_the_rust_front_end_is_left_alone(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_RUST_SERVER", "1")
    http_port.check_launch(_arguments(taken))


def _serve_without_end(port: int, said: Path) -> None:
    """A server with a child, whose shutdown waits, as upstream's does for its warm-up."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        child = subprocess.Popen(["sleep", "3600"])
        said.write_text(f"{child.pid}\n")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        threading.Event().wait()

    logging.basicConfig(filename=said, force=True)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None)
    http_port.Server(config).run()


def test_a_port_that_is_lost_ends_the_server_and_what_it_started(
    taken: int, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    process = multiprocessing.get_context("fork").Process(
        target=_serve_without_end, args=(taken, said)
    )
    process.start()
    process.join(300)
    process.kill()
    process.join()
    assert process.exitcode == 1
    first, *_, last = said.read_text().splitlines()
    assert f"port {taken} (--port)" in last
    assert not record.alive(int(first))
