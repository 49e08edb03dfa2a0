"""Requests that differ in everything a request can ask for, sent as one batch."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from sglang_spec.client import Client

GRAMMARS = frozenset({"regex", "ebnf", "json_schema", "structural_tag"})


@dataclass(frozen=True)
class Ask:
    """One request; `sampling` as in `/generate`, greedy unless it says otherwise.

    Attributes:
        token_ids: whose logprobs are wanted, if any are.
        reasoning: whether a grammar waits for the end of the reasoning.
        stream: whether the answer comes in chunks.
    """

    prompt: tuple[int, ...]
    sampling: dict[str, Any] = field(default_factory=dict)
    processor: str | None = None
    logprobs: bool = False
    token_ids: tuple[int, ...] = (64, 65)
    reasoning: bool = False
    stream: bool = False

    @property
    def choices(self) -> int:
        """How many answers are wanted."""
        return int(self.sampling.get("n", 1))

    @property
    def may_fail(self) -> bool:
        """A processor or a minimum length may ask for what a grammar forbids, which is an error."""
        asks_for_more = self.processor is not None or "min_new_tokens" in self.sampling
        return asks_for_more and not GRAMMARS.isdisjoint(self.sampling)


@dataclass(frozen=True)
class Reply:
    """What must be the same with and without speculation, and how it came about.

    Attributes:
        accepted: cycles that accepted 0, 1, 2, … drafts.
        reasoning: tokens of it.
        others: the further choices, with `n`.
        chunks: tokens and text as far as they had come, of an answer that was streamed.
    """

    tokens: tuple[int, ...]
    text: str
    finish: dict[str, Any]
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[tuple[float, int], ...], ...] = ()
    by_id: tuple[tuple[float, ...], ...] = ()
    cycles: int = 0
    accepted: tuple[int, ...] = ()
    retractions: int = 0
    reasoning: int = 0
    others: tuple[Reply, ...] = ()
    chunks: tuple[tuple[tuple[int, ...], str], ...] = ()

    def choices(self) -> tuple[Reply, ...]:
        """All answers to the request."""
        return self, *self.others

    def said(self) -> tuple[Any, ...]:
        """Everything that has no rounding in it."""
        return self.tokens, self.text, self.finish, self.reasoning


def ask(client: Client, asks: Sequence[Ask]) -> list[Reply]:
    """All requests in as few calls as can be, all at once: the server runs them as one batch."""
    calls: dict[object, list[int]] = {}
    for place, one in enumerate(asks):
        # A call says these for all its requests, as `reasoning`, and it fails as a whole.
        alone = one.stream or one.choices > 1 or one.may_fail
        calls.setdefault(place if alone else str(one.reasoning), []).append(place)
    found: dict[int, Reply] = {}

    def call(places: list[int]) -> None:
        replies = _call(client, [asks[place] for place in places])
        found.update(zip(places, replies, strict=True))

    with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
        list(pool.map(call, calls.values()))
    return [found[place] for place in range(len(asks))]


def post(client: Client, asks: Sequence[Ask]) -> httpx.Response:
    """One call for several requests that agree in `reasoning`, or for one of any kind."""
    first, several = asks[0], len(asks) > 1
    per_ask: dict[str, list[Any]] = {
        "input_ids": [list(one.prompt) for one in asks],
        "sampling_params": [{"temperature": 0, **one.sampling} for one in asks],
        "custom_logit_processor": [one.processor for one in asks],
        "return_logprob": [one.logprobs for one in asks],
        "top_logprobs_num": [3 if one.logprobs else 0 for one in asks],
        "token_ids_logprob": [list(one.token_ids) if one.logprobs else [] for one in asks],
    }
    return client.post(
        "/generate",
        **{name: values if several else values[0] for name, values in per_ask.items()},
        **({"require_reasoning": True} if first.reasoning else {}),
        **({"stream": True} if first.stream else {}),
    )


def _call(client: Client, asks: Sequence[Ask]) -> list[Reply]:
    reply = post(client, asks)
    choices = asks[0].choices
    if asks[0].may_fail and reply.status_code == 500:
        failed = Reply((), "", {"type": "abort", "message": reply.json()["message"]})
        return [replace(failed, others=(failed,) * (choices - 1))]
    assert reply.status_code == 200, reply.text[:500]
    if asks[0].stream:
        bodies = [json.loads(line[6:]) for line in reply.text.splitlines() if line[:7] == "data: {"]
        by_choice = [[one for one in bodies if one.get("index", 0) == n] for n in range(choices)]
        first, *others = (_streamed(some) for some in by_choice)
        return [replace(first, others=tuple(others))]
    if choices > 1:
        first, *others = map(_reply, reply.json())
        return [replace(first, others=tuple(others))]
    return [_reply(body) for body in (reply.json() if len(asks) > 1 else [reply.json()])]


def _streamed(bodies: Sequence[dict[str, Any]]) -> Reply:
    """Each chunk has all that came before it too."""
    seen = tuple((tuple(body["output_ids"]), body["text"]) for body in bodies)
    return replace(_reply(bodies[-1]), chunks=seen)


def _reply(body: dict[str, Any]) -> Reply:
    meta = body["meta_info"]
    return Reply(
        tokens=tuple(body["output_ids"]),
        text=body["text"],
        finish=meta["finish_reason"],
        logprobs=tuple(_logprob(entry[0]) for entry in meta.get("output_token_logprobs") or ()),
        top=tuple(
            tuple((_logprob(entry[0]), entry[1]) for entry in place)
            for place in meta.get("output_top_logprobs") or ()
        ),
        by_id=tuple(
            tuple(_logprob(entry[0]) for entry in place)
            for place in meta.get("output_token_ids_logprobs") or ()
        ),
        cycles=meta.get("spec_verify_ct", 0),
        accepted=tuple(meta.get("spec_correct_drafts_histogram", ())),
        retractions=meta.get("num_retractions", 0),
        reasoning=meta.get("reasoning_tokens", 0),
    )


def _logprob(written: float | None) -> float:
    """JSON has no infinity: the logprob of a token that is forbidden is null there."""
    return -math.inf if written is None else written
