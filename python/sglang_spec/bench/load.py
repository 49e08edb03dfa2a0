"""Requests at a fixed concurrency, and how fast tokens came while all of them were decoding."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp


class LoadError(RuntimeError):
    """The server refused a request or broke off; the text says what it answered."""


@dataclass
class Stream:
    """One request: when how many of its tokens had come, and the last figures it told."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    def note(self, meta: dict[str, Any]) -> None:
        self.seconds.append(time.perf_counter())
        self.tokens.append(int(meta["completion_tokens"]))
        self.meta = meta

    def tokens_at(self, moment: float) -> float:
        """Tokens that had come by then, linear between two notes."""
        pairs = list(zip(self.seconds, self.tokens, strict=True))
        before = [(s, t) for s, t in pairs if s <= moment]
        after = [(s, t) for s, t in pairs if s > moment]
        if not before:
            return 0.0
        if not after:
            return float(self.tokens[-1])
        (s0, t0), (s1, t1) = before[-1], after[0]
        return t0 + (t1 - t0) * (moment - s0) / (s1 - s0)

    def cycles_between(self, begun: float, ended: float) -> float | None:
        """Verify cycles of an ended request in that time; None of one without speculation."""
        cycles = int(self.meta.get("spec_verify_ct") or 0)
        later = self.tokens[-1] - 1  # the first comes from the prefill
        if not cycles or not later:
            return None
        return cycles * (self.tokens_at(ended) - self.tokens_at(begun)) / later


@dataclass(frozen=True)
class Burst:
    """Requests that ran together.

    `tok_s` is over the time in which all of them decoded: from when the last one's first tokens
    came to when the first one's last came. `accept_length` is over whole requests, `cycles` are the
    verify cycles of a request in that time, their mean; both are None without speculation.
    """

    tok_s: float
    window: float
    seconds: float
    tokens: int
    accept_length: float | None
    cycles: float | None = None


def prompts(
    count: int, length: int, tokens: tuple[int, int], first: int, seed: int = 0
) -> list[list[int]]:
    """`count` prompts of random ids after `first`; prompt i of a seed and length never changes."""
    made = []
    for number in range(count):
        dice = random.Random(f"{seed} {length} {number}")
        made.append([first, *(dice.randrange(*tokens) for _ in range(length - 1))])
    return made


def burst(url: str, asked: Sequence[Sequence[int]], new_tokens: int) -> Burst:
    """All requests at once, greedy, of `new_tokens` tokens each."""
    begun = time.perf_counter()
    streams = asyncio.run(_together(url, asked, new_tokens))
    seconds = time.perf_counter() - begun
    first = max(stream.seconds[0] for stream in streams)
    last = min(stream.seconds[-1] for stream in streams)
    window = last - first
    if window <= 0:
        raise LoadError(
            f"{len(asked)} requests of {new_tokens} tokens never decoded together; ask for more "
            "tokens (--tokens) or fewer requests"
        )
    came = sum(stream.tokens_at(last) - stream.tokens_at(first) for stream in streams)
    total = sum(stream.tokens[-1] for stream in streams)
    cycles = _mean([stream.cycles_between(first, last) for stream in streams])
    return Burst(came / window, window, seconds, total, accept_length(streams), cycles)


def ramp(url: str, levels: Sequence[Sequence[Sequence[int]]], new_tokens: int) -> Burst:
    """Bursts one after the other without a pause; `tok_s` is all their tokens over all the time."""

    async def all_levels() -> list[Stream]:
        streams: list[Stream] = []
        async with _session(url) as session:
            for asked in levels:
                streams += await _level(session, asked, new_tokens)
        return streams

    begun = time.perf_counter()
    streams = asyncio.run(all_levels())
    seconds = time.perf_counter() - begun
    total = sum(stream.tokens[-1] for stream in streams)
    return Burst(total / seconds, seconds, seconds, total, accept_length(streams))


def edge(
    url: str,
    long: Sequence[Sequence[int]],
    short: Sequence[int],
    new_tokens: int,
    short_tokens: int,
) -> Burst:
    """`long` requests to their end, and beside them a short one that comes and goes."""

    async def both() -> list[Stream]:
        async with _session(url) as session:
            running = asyncio.create_task(_level(session, long, new_tokens))
            while not running.done():
                await _one(session, short, short_tokens)
            return await running

    begun = time.perf_counter()
    streams = asyncio.run(both())
    seconds = time.perf_counter() - begun
    total = sum(stream.tokens[-1] for stream in streams)
    return Burst(total / seconds, seconds, seconds, total, accept_length(streams))


def beside(
    url: str,
    watched: Sequence[int],
    new_tokens: int,
    crowd: Sequence[Sequence[int]],
    crowd_tokens: int,
) -> tuple[Stream, float]:
    """One long request, and a crowd that comes once it decodes; when the crowd was gone."""

    async def both() -> tuple[Stream, float]:
        async with _session(url) as session:
            started = asyncio.Event()
            alone = asyncio.create_task(_one(session, watched, new_tokens, started.set))
            await asyncio.wait(
                {alone, asyncio.create_task(started.wait())}, return_when="FIRST_COMPLETED"
            )
            if crowd:
                await _level(session, crowd, crowd_tokens)
            gone = time.perf_counter()
            return await alone, gone

    return asyncio.run(both())


def accept_length(streams: Sequence[Stream]) -> float | None:
    """Tokens a cycle over all requests; the first token of each comes from its prefill."""
    cycles = sum(int(stream.meta.get("spec_verify_ct") or 0) for stream in streams)
    correct = sum(int(stream.meta.get("spec_num_correct_drafts") or 0) for stream in streams)
    return 1 + correct / cycles if cycles else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _session(url: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=300),
        read_bufsize=2**20,
    )


async def _together(url: str, asked: Sequence[Sequence[int]], new_tokens: int) -> list[Stream]:
    async with _session(url) as session:
        return await _level(session, asked, new_tokens)


async def _level(
    session: aiohttp.ClientSession, asked: Sequence[Sequence[int]], new_tokens: int
) -> list[Stream]:
    return list(await asyncio.gather(*(_one(session, ids, new_tokens) for ids in asked)))


async def _one(
    session: aiohttp.ClientSession,
    ids: Sequence[int],
    new_tokens: int,
    on_first: Callable[[], None] = lambda: None,
) -> Stream:
    stream = Stream()
    body = {
        "input_ids": list(ids),
        "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True},
    }
    try:
        await _read(session, body, stream, on_first)
    except aiohttp.ClientError as error:
        raise LoadError(f"the connection broke: {error!r}") from error
    if not stream.tokens or stream.tokens[-1] != new_tokens:
        raise LoadError(f"a request ended after {stream.tokens[-1:]} of {new_tokens} tokens")
    return stream


async def _read(
    session: aiohttp.ClientSession,
    body: dict[str, Any],
    stream: Stream,
    on_first: Callable[[], None],
) -> None:
    async with session.post("/generate", json=body) as reply:
        if reply.status != 200:
            raise LoadError(f"/generate answered {reply.status}: {(await reply.text())[:300]}")
        async for line in reply.content:
            if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                continue
            chunk = json.loads(line[5:])
            if "error" in chunk:
                raise LoadError(f"the server broke off: {chunk['error']}")
            if not stream.seconds:
                on_first()
            stream.note(chunk["meta_info"])
