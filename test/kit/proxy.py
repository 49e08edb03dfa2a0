"""A proxy in front of a real server that changes one token of each greedy answer."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

import httpx


def _changed(content: bytes, position: int) -> bytes:
    answer = json.loads(content)
    if len(answer["output_ids"]) > position:
        answer["output_ids"][position] ^= 1
    return json.dumps(answer).encode()


class Proxy:
    """`with Proxy(url, position=5) as proxy: proxy.url`: token `position` is another one."""

    def __init__(self, url: str, position: int) -> None:
        upstream = httpx.Client(base_url=url, timeout=600)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(upstream.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {"content-type": "application/json"}
                reply = upstream.post(self.path, content=body, headers=headers)
                self._answer(reply, lie=self.path == "/generate")

            def _answer(self, reply: httpx.Response, lie: bool = False) -> None:
                content = reply.content
                kind = reply.headers.get("content-type", "")
                if lie and kind.startswith("application/json"):
                    content = _changed(content, position)
                elif lie and kind.startswith("text/event-stream"):
                    events = [
                        b"data: " + _changed(event[6:], position)
                        if event.startswith(b"data: {")
                        else event
                        for event in content.split(b"\n\n")
                    ]
                    content = b"\n\n".join(events)
                self.send_response(reply.status_code)
                self.send_header("content-type", reply.headers.get("content-type", "text/plain"))
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                """Nothing: the server behind keeps the log."""

        self._upstream = upstream
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._upstream.close()
