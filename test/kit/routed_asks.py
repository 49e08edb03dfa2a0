"""Requests whose answers are known, as a client sends them that does not retry, and their fate.

Each answer is known beforehand (the tiny pair), so a request that was answered wrongly counts as
lost too. Half of the requests are streamed: such a request can be sent again only until its answer
has begun.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY

PROMPTS = 40
TOKENS = 160  # of an answer
CONCURRENT = 200
PATIENCE = 300.0  # seconds for one request, retries included
KEY = "of-the-replicas"  # of the servers and of the router
KEYED = {"Authorization": f"Bearer {KEY}"}


@dataclass(frozen=True)
class Ask:
    """One request; its answer is known."""

    prompt: list[int]
    answer: list[int]
    streamed: bool


@dataclass
class Outcome:
    """`begun`: a header of the answer had come. `kind`: `complete`, or how it failed."""

    streamed: bool
    kind: str = ""
    begun: bool = False
    status: int = 0

    @property
    def retryable(self) -> bool:
        """Nothing of an answer had reached the client, so somebody else could give it."""
        return not (self.streamed and self.begun)


def asks() -> list[Ask]:
    oracle, rng = Oracle(TINY), random.Random(5)
    found = []
    for number in range(PROMPTS):
        prompt = [BOS, *(rng.randrange(SPECIALS, VOCABULARY) for _ in range(20))]
        found.append(Ask(prompt, oracle.greedy(prompt, TOKENS), number % 2 == 1))
    return found


async def send(http: httpx.AsyncClient, url: str, ask: Ask) -> Outcome:
    """Ask once, as a client that does not retry."""
    out = Outcome(ask.streamed)
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    body = {"input_ids": ask.prompt, "sampling_params": sampling, "stream": ask.streamed}
    last: dict[str, Any] = {}
    ended = not ask.streamed
    try:
        async with http.stream("POST", f"{url}/generate", json=body) as reply:
            out.begun, out.status = True, reply.status_code
            if reply.status_code != 200:
                code = (await reply.aread()).decode("utf-8", "replace")
                found = re.search(r'"code": ?"(\w+)"', code)
                out.begun = False
                out.kind = f"HTTP {reply.status_code} {found[1] if found else ''}".strip()
                return out
            if not ask.streamed:
                last = json.loads(await reply.aread())
            else:
                async for line in reply.aiter_lines():
                    ended = ended or line == "data: [DONE]"
                    if line.startswith("data: {"):
                        last = json.loads(line.removeprefix("data: "))
    except httpx.HTTPError as error:
        out.kind = f"cut: {type(error).__name__}"
        return out
    if "error" in last:
        out.kind = "error event"
    elif not ended:
        out.kind = "ended without [DONE]"
    else:
        out.kind = "complete" if last.get("output_ids") == ask.answer else "wrong answer"
    return out


def counted(outcomes: list[Outcome]) -> dict[str, Any]:
    """Requests by what became of them; the figures of the record."""
    found: dict[str, Any] = {"requests": len(outcomes)}
    for name, streamed in (("whole", False), ("streamed", True)):
        some = Counter(one.kind for one in outcomes if one.streamed is streamed)
        found[name] = dict(sorted(some.items()))
    lost = [one for one in outcomes if one.kind != "complete"]
    found["retryable_lost"] = sum(one.retryable for one in lost)
    found["begun_and_cut"] = sum(not one.retryable for one in lost)
    found["wrong_or_silently_short"] = sum(
        one.kind in ("wrong answer", "ended without [DONE]") for one in lost
    )
    return found


def client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(timeout=PATIENCE, limits=limits, headers=KEYED)


async def flood(url: str, known: list[Ask], then: Callable[[], None]) -> list[Outcome]:
    """`CONCURRENT` requests at once; `then` once a tenth of them is answered."""
    async with client() as http:
        tasks = [
            asyncio.create_task(send(http, url, known[number % len(known)]))
            for number in range(CONCURRENT)
        ]
        while sum(task.done() for task in tasks) < CONCURRENT // 10:
            await asyncio.sleep(0.01)
        then()
        return list(await asyncio.gather(*tasks))


async def steady(
    url: str, known: list[Ask], while_: Awaitable[Any], clients: int = 8
) -> list[Outcome]:
    """`clients` that ask without a pause for as long as `while_` takes."""
    work = asyncio.ensure_future(while_)
    outcomes: list[Outcome] = []

    async def one(http: httpx.AsyncClient, number: int) -> None:
        while not work.done():
            outcomes.append(await send(http, url, known[number % len(known)]))
            number += clients

    async with client() as http:
        await asyncio.gather(*(one(http, number) for number in range(clients)))
    await work
    return outcomes
