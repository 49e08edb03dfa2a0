"""`sglang-spec ready` against servers that are gone, not ready, and ready after a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from kit.recipes import recipe
from sglang_spec import process, ready

REASON = b"verify has been out for 21 s"


class Handler(BaseHTTPRequestHandler):
    """Answers 503 with a reason until it was asked `server.after` times."""

    def do_GET(self) -> None:
        asked: list[str] = self.server.asked  # type: ignore[attr-defined]
        asked.append(self.path)
        green = len(asked) > self.server.after  # type: ignore[attr-defined]
        self.send_response(200 if green else 503)
        self.end_headers()
        self.wfile.write(b"" if green else REASON)

    def log_message(self, *_: object) -> None:
        """Nothing of it belongs into the output of the tests."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.asked, found.after = [], 0  # type: ignore[attr-defined]
    threading.Thread(target=found.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()


def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_ready(server: ThreadingHTTPServer) -> None:
    assert CliRunner().invoke(ready.ready, [url(server)]).exit_code == 0
    assert server.asked == ["/ready"]  # type: ignore[attr-defined]


def test_not_ready_says_why(server: ThreadingHTTPServer) -> None:
    server.after = 9  # type: ignore[attr-defined]
    result = CliRunner().invoke(ready.ready, [url(server)])
    assert result.exit_code == 1 and f"HTTP 503: {REASON.decode()}" in result.stderr


def test_it_goes_on_asking(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "EVERY", 0.05)
    server.after = 3  # type: ignore[attr-defined]
    assert CliRunner().invoke(ready.ready, [url(server), "--timeout", "120"]).exit_code == 0
    assert len(server.asked) == 4  # type: ignore[attr-defined]


def test_nobody_listens() -> None:
    result = CliRunner().invoke(ready.ready, [f"http://127.0.0.1:{process.free_port()}"])
    assert result.exit_code == 1 and "ConnectError" in result.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [("embedded", "http://127.0.0.1:30000"), ("kimi-k2.5-h200", "http://127.0.0.1:30000")],
)
def test_of_a_recipe(name: str, expected: str) -> None:
    assert ready._url_of(recipe(name)) == expected


def test_no_recipe() -> None:
    assert CliRunner().invoke(ready.ready, ["none.toml"]).exit_code == 2


@pytest.mark.parametrize("wrong", ["http://h:99999", "http://h:abc", "http://h:-1"])
def test_a_port_that_is_none_is_wrong_usage(wrong: str) -> None:
    result = CliRunner().invoke(ready.ready, [wrong])
    assert result.exit_code == 2 and wrong in result.stderr and "HOST:PORT" in result.stderr


def test_changes_are_of_a_recipe() -> None:
    assert ready._url_of(recipe("embedded"), ["listen.port=31000"]) == "http://127.0.0.1:31000"
    result = CliRunner().invoke(ready.ready, ["http://127.0.0.1:1", "--set", "listen.port=2"])
    assert result.exit_code == 2 and "--set is for a recipe" in result.stderr
