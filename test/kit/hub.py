"""A model hub on this machine: as much of its HTTP interface as fetching a repository takes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

COMMIT = "2" * 40


class Hub:
    """`with Hub({"acme/draft": folder}) as hub:` serves these folders at `hub.url`.

    Attributes:
        asked: the paths that were asked for, in order.
    """

    def __init__(self, repositories: Mapping[str, Path]) -> None:
        self._files = {
            name: {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
            for name, folder in repositories.items()
        }
        self.asked: list[str] = []

    def spoil(self, repository: str, file: str, change: Callable[[bytes], bytes]) -> None:
        self._files[repository][file] = change(self._files[repository][file])

    def remove(self, repository: str, file: str) -> None:
        del self._files[repository][file]

    def asked_for(self, file: str) -> bool:
        return any(path.endswith(f"/{file}") for path in self.asked)

    def __enter__(self) -> Hub:
        hub = self

        class Handler(_Handler):
            files = hub._files
            asked = hub.asked

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    files: Mapping[str, Mapping[str, bytes]]
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        for name, files in self.files.items():
            if path.startswith(f"/api/models/{name}"):
                self._send(json.dumps(self._told(name, files, path)).encode(), with_body)
                return
            start, _, file = path.rpartition("/")
            if start.startswith(f"/{name}/resolve/") and file in files:
                self._send(files[file], with_body, file=True)
                return
        self.send_response(404)
        self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _told(self, name: str, files: Mapping[str, bytes], path: str) -> Any:
        listed = [
            {"type": "file", "path": file, "size": len(held), "oid": _hash(held)}
            for file, held in files.items()
        ]
        if "/tree/" in path or "/paths-info/" in path:
            return listed if path.endswith(("/main", COMMIT)) else []
        siblings = [{"rfilename": file} for file in files]
        return {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": []}

    def _send(self, body: bytes, with_body: bool, file: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if file:
            self.send_header("ETag", f'"{_hash(body)}"')
            self.send_header("X-Repo-Commit", COMMIT)
        else:
            self.send_header("Content-Type", "application/json")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _hash(held: bytes) -> str:
    return hashlib.sha256(held).hexdigest()
