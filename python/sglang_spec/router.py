"""The routes of `sglang-router` for its servers: which it has, one out, one in."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from .client import api_key, key_headers

PATIENCE = 10.0  # seconds for one answer


class RollError(RuntimeError):
    """The roll stopped; the text says at which server, why, and what became of it."""


@dataclass(frozen=True)
class Router:
    """The routes of `sglang-router` for its workers."""

    url: str

    def workers(self) -> dict[str, tuple[str, bool]]:
        """By URL: the worker's id, and whether the router sends to it."""
        found = self._ask("GET", "/workers").json()["workers"]
        return {one["url"].rstrip("/"): (one["id"], one["is_healthy"]) for one in found}

    def remove(self, worker: str) -> None:
        """Nothing new goes to the worker of this id; what it has goes on."""
        self._ask("DELETE", f"/workers/{worker}")

    def add(self, url: str) -> None:
        """Hand a server over, with its key if the router itself asks its clients for one.

        The key of a server goes before what a client sends: a router that asks for none would let
        everybody in with it.
        """
        key = api_key() if self._asks_for_a_key() else None
        self._ask("POST", "/workers", json={"url": url, **({"api_key": key} if key else {})})

    def _asks_for_a_key(self) -> bool:
        try:
            return httpx.get(f"{self.url.rstrip('/')}/workers", timeout=PATIENCE).status_code == 401
        except httpx.HTTPError as error:
            raise RollError(f"GET {self.url}/workers: {type(error).__name__}: {error}") from error

    def _ask(self, method: str, path: str, **more: object) -> httpx.Response:
        url = f"{self.url.rstrip('/')}{path}"
        try:
            reply = httpx.request(method, url, timeout=PATIENCE, headers=key_headers(), **more)  # type: ignore[arg-type]
            if reply.status_code == 401:
                raise RollError(f"{method} {url}: 401; give the router's key in SGLANG_API_KEY")
            reply.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RollError(f"{method} {url}: {type(error).__name__}: {error}") from error
        return reply
