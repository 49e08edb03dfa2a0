"""A server behind the router that drafts badly while its answers are right: nothing is sent to it.

It is not killed and it decodes: `/ready` stays 200, `/ready?speculation=healthy` is 503. A third
server, whose target can be made to capture other layers than its draft was made for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import httpx
from sglang_spec.roll import hand_back, roll_servers
from sglang_spec.router import Router

from .behind_router import SETTLED, Setup, environment_key, healthy, wait
from .routed_asks import Ask, Outcome, client, counted, send, steady

ENOUGH = 50  # requests to the others while it is out


def _ready(url: str, question: str = "") -> httpx.Response:
    return httpx.get(f"{url}/ready{question}", timeout=30)


async def _alone(url: str, known: list[Ask]) -> list[Outcome]:
    """Requests to one server, not through the router: at eight a time."""
    async with client() as http:
        found: list[Outcome] = []
        for at in range(0, len(known), 8):
            found += await asyncio.gather(*(send(http, url, ask) for ask in known[at : at + 8]))
        return found


def degraded(made: Setup, known: list[Ask]) -> dict[str, Any]:
    """One server of three is degraded under requests; `roll --only` makes it whole."""
    fault = made.folder / "fault"
    fault.write_text("")
    others = list(made.servers)
    third = made.start(fault=fault)
    third.wait_ready()
    with environment_key():
        hand_back(Router(made.router), [third.url], 120.0)
    assert healthy(made) == len(made.servers) == 3
    own: list[Outcome] = asyncio.run(_alone(third.url, known[:8]))
    assert _ready(third.url, "?speculation=healthy").status_code == 200
    figures: dict[str, Any] = {}

    async def degrade() -> None:
        fault.write_text("capture -")
        own.extend(await _alone(third.url, known[:24]))
        await asyncio.to_thread(look)

    def look() -> None:
        told = _ready(third.url, "?speculation=healthy")
        figures["ready_speculation_healthy"], figures["says"] = told.status_code, told.text
        figures["ready"] = _ready(third.url).status_code
        wait(lambda: healthy(made) == 2, "the router takes it out")
        time.sleep(SETTLED)
        before = {url: made.sent(url) for url in made.servers}
        wait(
            lambda: sum(made.sent(url) - before[url] for url in others) >= ENOUGH,
            "the others answer",
        )
        figures["sent_to_it_while_out"] = made.sent(third.url) - before[third.url]
        figures["sent_to_the_others_meanwhile"] = sum(
            made.sent(url) - before[url] for url in others
        )
        figures["ready_at_the_end"] = _ready(third.url).status_code

    def restart(url: str) -> None:
        os.kill(third.pid, signal.SIGTERM)
        wait(lambda: third.returncode is not None, f"{url} has left")
        third.stop()
        made.start(third.port)

    async def again() -> None:
        with environment_key():
            router, only = Router(made.router), [third.url]
            await asyncio.to_thread(roll_servers, router, restart, only, 120.0)

    outcomes = asyncio.run(steady(made.router, known, degrade(), clients=4))
    rolled = asyncio.run(steady(made.router, known, again(), clients=2))
    figures["asked_directly_it_answers"] = counted(own)
    figures["while_it_is_restarted"] = counted(rolled)
    figures["healthy_again"] = healthy(made)
    return {**counted(outcomes), **figures}
