"""Connections to other hosts get a limit, others are left alone; the host is named in a failure."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sglang.srt.spec_hardening import death, distant, record

GLOO = (
    "RuntimeError: [/build/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[{}]:47269. This is typically caused by a remote worker crashing."
)


@pytest.fixture
def joined() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connections of this process: between two addresses, as to another host, and one."""
    with ExitStack() as stack:
        sockets = []
        for here in ("127.0.0.2", "127.0.0.1"):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            made = stack.enter_context(
                socket.create_connection(listener.getsockname(), source_address=(here, 0))
            )
            stack.enter_context(listener.accept()[0])
            sockets.append(made)
        yield sockets[0], sockets[1]


def _kept_alive(connection: socket.socket) -> tuple[int, int, int]:
    return (
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )


def test_only_connections_to_other_hosts_get_the_limit(
    joined: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near = joined
    before = _kept_alive(near)
    monkeypatch.setenv(distant.VARIABLE, "8")
    assert distant.keep_alive(nnodes=2) >= 2  # both ends of `far` are in this process
    assert _kept_alive(far) == (1, 2, 8000)
    assert _kept_alive(near) == before


@pytest.mark.parametrize(("nnodes", "limit"), [(1, "8"), (2, "0")])
def test_one_node_or_no_limit_changes_nothing(
    joined: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    nnodes: int,
    limit: str,
) -> None:
    before = _kept_alive(joined[0])
    monkeypatch.setenv(distant.VARIABLE, limit)
    assert distant.keep_alive(nnodes) == 0
    assert _kept_alive(joined[0]) == before


@pytest.mark.parametrize("given", ["soon", "-1", "0.5", "nan", "inf", "86401"])
def test_a_limit_that_is_none_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(distant.VARIABLE, given)
    with pytest.raises(ValueError, match=f"{distant.VARIABLE} = '{given}': write seconds"):
        distant.limit()


@pytest.mark.parametrize(
    ("cause", "address"),
    [
        (GLOO.format("10.0.0.2"), "10.0.0.2"),
        (GLOO.format("fd00::2"), "fd00::2"),
        (GLOO.format("127.0.0.1"), ""),
        (GLOO.format("::1"), ""),
        ("ValueError: out[1]:2 and [12:30]:7", ""),
        ("ncclRemoteError", ""),
    ],
)
def test_the_address_of_the_other_host(cause: str, address: str) -> None:
    assert distant.address_in(cause) == address


@pytest.mark.parametrize(("own", "named"), [("", True), ("ValueError: mine", False)])
def test_the_final_line_names_the_lost_node_unless_a_rank_here_failed_first(
    monkeypatch: pytest.MonkeyPatch, own: str, named: bool
) -> None:
    board = record.Board.create()
    monkeypatch.delenv(record.PATH_VARIABLE)
    monkeypatch.setattr(death, "_board", board)
    board.claim("rank TP0").fail(GLOO.format("10.0.0.2"), "")
    if own:
        board.claim("rank TP1").fail(own, "")
    found = death.verdict()
    assert found is not None
    assert ("lost the node at 10.0.0.2, whose own log says why: " in found.line) is named
    assert (found.rank == "rank TP0") is named
