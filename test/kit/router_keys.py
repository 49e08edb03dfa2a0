"""What a router lets in that asks for the servers' API key, and what one that asks for none."""

from __future__ import annotations

from typing import Any

import httpx
from sglang_spec.router import Router

from .behind_router import Setup, environment_key, healthy_at, routing, wait
from .routed_asks import KEY, KEYED, Ask

NOWHERE = "http://127.0.0.1:1"  # of a server that nobody is allowed to add
WITHOUT = {"no key": {}, "another key": {"Authorization": f"Bearer {KEY}x"}}
TIMES = 8  # a request is sent so often that every server is chosen


def _asked(router: str, ask: Ask, headers: dict[str, str]) -> dict[str, list[int]]:
    """Status of each route, asked in this way; more than one where servers answer differently."""
    sampling = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
    native = {"input_ids": ask.prompt, "sampling_params": sampling}
    with httpx.Client(base_url=router, headers=headers, timeout=60) as http:
        model = http.get("/v1/models").json()["data"][0]["id"]
        openai = {"model": model, "prompt": "a", "max_tokens": 4}
        found = {
            "POST /generate": [http.post("/generate", json=native) for _ in range(TIMES)],
            "POST /v1/completions": [http.post("/v1/completions", json=openai)],
            "GET /workers": [http.get("/workers")],
            "POST /flush_cache": [http.post("/flush_cache")],
            "GET /readiness": [http.get("/readiness")],
        }
    return {name: sorted({one.status_code for one in some}) for name, some in found.items()}


def keys(made: Setup, known: list[Ask]) -> dict[str, Any]:
    """Both routers with keyless, wrong and right requests; `add` as `sglang-spec roll` does it."""
    sent = sum(map(made.sent, made.servers))
    closed = {who: _asked(made.router, known[0], headers) for who, headers in WITHOUT.items()}
    figures: dict[str, Any] = {"sent_on_for_those": sum(map(made.sent, made.servers)) - sent}
    closed["the key"] = _asked(made.router, known[0], KEYED)
    adding = httpx.post(f"{made.router}/workers", json={"url": NOWHERE}, timeout=60)
    figures["add_without_the_key"] = adding.status_code
    first, *others = made.servers
    with routing(made.folder / "open-router.log", [first], key="") as (url, _):
        with environment_key():
            for other in others:
                Router(url).add(other)
        wait(lambda: healthy_at(url) == len(made.servers), "the open router knows its servers")
        everybody = {**WITHOUT, "the key": KEYED}
        open_ = {who: _asked(url, known[0], headers) for who, headers in everybody.items()}
    return {**figures, "router_with_the_key": closed, "router_without_a_key": open_}
