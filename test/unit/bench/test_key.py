"""The key of a server that runs: sent by all that asks it, and only if it is set."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx
import pytest
from sglang_spec.bench import generator, lossless, side

KEY = "k-of-a-test"


class Handler(BaseHTTPRequestHandler):
    """A server with a key."""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization") == f"Bearer {KEY}"
        self.send_response(200 if given else 401)
        self.end_headers()
        self.wfile.write(b'{"max_total_num_tokens": 7}')

    def log_message(self, *_: object) -> None:
        """Nothing of it belongs into the output of the tests."""


@pytest.fixture
def url() -> Iterator[str]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{found.server_address[1]}"
    finally:
        found.shutdown()
        found.server_close()


def test_a_side_is_asked_with_the_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    assert side.ask(url).kv_tokens == 7
    monkeypatch.delenv("SGLANG_API_KEY")
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        side.ask(url)


def test_so_are_loads_of_upstream_s_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    def own() -> dict[str, str]:
        return {"Authorization": "upstream's"}

    serving = SimpleNamespace(get_auth_headers=own)
    monkeypatch.delenv("SGLANG_API_KEY", raising=False)
    generator.headers_of(serving)
    assert serving.get_auth_headers is own
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    generator.headers_of(serving)
    assert serving.get_auth_headers() == {"Authorization": f"Bearer {KEY}"}


def test_so_are_prefills_that_look_for_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def forced(target: lossless.Target, *_: object) -> None:
        seen.append(target.http.headers.get("Authorization"))

    monkeypatch.setattr(lossless, "forced", forced)
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    lossless.by_prefill("http://127.0.0.1:1")(0, [1], [2])
    monkeypatch.delenv("SGLANG_API_KEY")
    lossless.by_prefill("http://127.0.0.1:1")(0, [1], [2])
    assert seen == [f"Bearer {KEY}", None]
