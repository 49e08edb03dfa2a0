"""`sglang-spec roll` against a router and servers that remember in which order they were asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec import process, roll
from sglang_spec.roll import roll_servers
from sglang_spec.router import RollError, Router

Answer = Callable[[str, str, dict[str, Any]], tuple[int, Any]]
KEY = "of-the-test"


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The URL of a server that answers each request with `answer(method, path, body)`."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            body |= {"key": key} if (key := self.headers.get("Authorization")) else {}
            status, content = answer(self.command, self.path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Nothing of it belongs into the output of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class World:
    """A router with two servers; `events` is what happened to whom, in order."""

    def __init__(self, stack: ExitStack) -> None:
        self.events: list[str] = []
        self.busy = dict.fromkeys("ab", 2)  # questions until a server has nothing to do
        self.ready = dict.fromkeys("ab", True)
        self.urls = {name: stack.enter_context(answering(self.server(name))) for name in self.busy}
        self.names = {url: name for name, url in self.urls.items()}
        self.listed = {name: True for name in self.busy}  # and whether it is healthy
        self.closed = False  # the router asks for the key
        self.handed: list[str | None] = []  # the key that came with each server
        self.router = Router(stack.enter_context(answering(self.route)))

    def server(self, name: str) -> Answer:
        def answer(method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
            if path == "/ready":
                self.events.append(f"{name} asked for ready")
                return (200 if self.ready[name] else 503), {}
            assert path == "/v1/loads?include=core"
            self.busy[name] -= 1
            self.events.append(f"{name} has {self.busy[name]}")
            return 200, {"loads": [{"num_running_reqs": self.busy[name], "num_waiting_reqs": 0}]}

        return answer

    def route(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.closed and body.get("key") != f"Bearer {KEY}":
            return 401, {}
        if method == "DELETE":
            self.events.append(f"{path.rpartition('-')[2]} removed")
            del self.listed[path.rpartition("-")[2]]
        if method == "POST":
            self.events.append(f"{self.names[body['url']]} added")
            self.handed.append(body.get("api_key"))
            self.listed[self.names[body["url"]]] = True
        rows = [
            {"id": f"id-{name}", "url": self.urls[name], "is_healthy": healthy}
            for name, healthy in self.listed.items()
        ]
        return 200, {"workers": rows}

    def restart(self, url: str) -> None:
        self.events.append(f"{self.names[url]} restarted")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Time is what `roll` has slept: how long an answer takes is a matter of the host."""
    slept = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: slept[0], sleep=lambda seconds: slept.append(slept.pop() + seconds)
    )
    monkeypatch.setattr(roll, "time", clock)
    monkeypatch.setattr(roll, "PATIENCE", 120.0)
    with ExitStack() as stack:
        yield World(stack)


def of_one(name: str) -> list[str]:
    return [
        *(f"{name} removed", f"{name} has 1", f"{name} has 0", f"{name} restarted"),
        *(f"{name} asked for ready", f"{name} added"),
    ]


def test_one_after_the_other(world: World) -> None:
    assert roll_servers(world.router, world.restart) == list(world.urls.values())
    assert world.events == [*of_one("a"), *of_one("b")]


def test_only_one(world: World) -> None:
    roll_servers(world.router, world.restart, [world.urls["b"] + "/"])
    assert world.events == of_one("b")


def test_nothing_is_taken_out_while_no_other_server_is_healthy(world: World) -> None:
    world.listed["b"] = False
    with pytest.raises(RollError, match="no other server takes requests"):
        roll_servers(world.router, world.restart)
    assert world.events == []


def test_a_server_that_does_not_come_back_stops_the_roll(world: World) -> None:
    world.ready["a"] = False
    with pytest.raises(RollError, match=r"is not ready again after 3 s; it is outside"):
        roll_servers(world.router, world.restart, timeout=3)
    assert "a added" not in world.events and "b removed" not in world.events


def test_a_busy_server_is_not_restarted(world: World) -> None:
    world.busy["a"] = 10**6
    with pytest.raises(RollError, match="has requests yet after 3 s"):
        roll_servers(world.router, world.restart, timeout=3)
    assert "a restarted" not in world.events


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("test {host}:{url} != 127.0.0.1:", 0, ""),
        ("false", 1, "false ended with 1; it is outside of the router"),
        ("no-such-command-here", 1, "no-such-command-here: "),
        ("ssh {where}", 2, "write a command with {host}"),
        ("ssh 'a", 2, "write a command with {host}"),
        ("", 2, "it is empty"),
    ],
)
def test_the_command(world: World, command: str, code: int, said: str) -> None:
    words = [world.router.url, "--restart", command, "--timeout", "20"]
    found = CliRunner().invoke(roll.roll, words)
    assert found.exit_code == code, found.output
    assert said in found.output
    assert ("b added" in world.events) is (code == 0)


def test_a_router_that_is_not_there_and_a_server_it_does_not_have(world: World) -> None:
    nowhere = f"http://127.0.0.1:{process.free_port()}"
    found = CliRunner().invoke(roll.roll, [nowhere, "--restart", "true"])
    assert found.exit_code == 1 and f"roll: GET {nowhere}/workers: ConnectError" in found.output
    words = [world.router.url, "--restart", "true", "--only", nowhere]
    found = CliRunner().invoke(roll.roll, words)
    assert found.exit_code == 1 and nowhere in found.output and world.events == []


@pytest.mark.parametrize("closed", [True, False])
def test_the_key_goes_only_to_a_router_that_asks_for_it(
    world: World, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the key of a server, an open router lets everybody in: it replaces what clients send."""
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    world.closed = closed
    roll_servers(world.router, world.restart)
    assert world.handed == [KEY if closed else None] * 2
    assert world.events == [*of_one("a"), *of_one("b")]


def test_a_router_that_wants_a_key_and_gets_none(world: World) -> None:
    world.closed = True
    with pytest.raises(RollError, match=r"401.*SGLANG_API_KEY"):
        roll_servers(world.router, world.restart)
    assert world.events == []


def test_a_server_that_a_roll_left_outside_comes_back(world: World) -> None:
    del world.listed["a"]
    url = world.urls["a"]
    stopped = CliRunner().invoke(roll.roll, [world.router.url, "--restart", "true", "--only", url])
    assert stopped.exit_code == 1 and f"--back {url}" in stopped.output
    words = [world.router.url, "--back", url, "--timeout", "20", "--json"]
    found = CliRunner().invoke(roll.roll, words)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == {"back": [url]}
    assert world.events == ["a asked for ready", "a added"]
    again = CliRunner().invoke(roll.roll, words)
    assert again.exit_code == 1 and "is listed already" in again.output
    assert world.events == ["a asked for ready", "a added"]


@pytest.mark.parametrize(
    "words",
    [[], ["--back", "http://x", "--only", "http://y"], ["--back", "http://x", "--restart", "true"]],
)
def test_what_cannot_be_asked_for_together(world: World, words: list[str]) -> None:
    found = CliRunner().invoke(roll.roll, [world.router.url, *words])
    assert found.exit_code == 2 and "--restart" in found.output
