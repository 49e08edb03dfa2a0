"""Requests that differ in everything a request can ask for, sent as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sglang_spec.client import Client


@dataclass(frozen=True)
class Ask:
    """One request; `sampling` as in `/generate`, greedy unless it says otherwise."""

    prompt: tuple[int, ...]
    sampling: dict[str, Any] = field(default_factory=dict)
    processor: str | None = None
    logprobs: bool = False
    token_ids: tuple[int, ...] = (64, 65)  # whose logprobs are wanted, if any are
    reasoning: bool = False  # whether a grammar waits for the end of the reasoning


@dataclass(frozen=True)
class Reply:
    """What must be the same with and without speculation, and how it came about."""

    tokens: tuple[int, ...]
    text: str
    finish: dict[str, Any]
    logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[float, int], ...], ...]
    by_id: tuple[tuple[float, ...], ...]
    cycles: int
    accepted: tuple[int, ...]  # cycles that accepted 0, 1, 2, … drafts
    retractions: int
    reasoning: int  # tokens of it

    def said(self) -> tuple[Any, ...]:
        """Everything that has no rounding in it."""
        return self.tokens, self.text, self.finish, self.reasoning


def ask(client: Client, asks: Sequence[Ask]) -> list[Reply]:
    """All requests in one call, or in two at once: the server runs them as one batch."""
    found: dict[int, Reply] = {}

    def call(reasoning: bool) -> None:  # which a call says for all its requests
        places = [place for place, one in enumerate(asks) if one.reasoning == reasoning]
        if places:
            replies = _call(client, [asks[place] for place in places], reasoning)
            found.update(zip(places, replies, strict=True))

    with ThreadPoolExecutor() as pool:
        list(pool.map(call, (False, True)))
    return [found[place] for place in range(len(asks))]


def _call(client: Client, asks: Sequence[Ask], reasoning: bool) -> list[Reply]:
    reply = client.post(
        "/generate",
        input_ids=[list(one.prompt) for one in asks],
        sampling_params=[{"temperature": 0, **one.sampling} for one in asks],
        custom_logit_processor=[one.processor for one in asks],
        return_logprob=[one.logprobs for one in asks],
        top_logprobs_num=[3 if one.logprobs else 0 for one in asks],
        token_ids_logprob=[list(one.token_ids) if one.logprobs else [] for one in asks],
        **({"require_reasoning": True} if reasoning else {}),
    )
    assert reply.status_code == 200, reply.text[:500]
    return [_reply(body) for body in reply.json()]


def _reply(body: dict[str, Any]) -> Reply:
    meta = body["meta_info"]
    return Reply(
        tokens=tuple(body["output_ids"]),
        text=body["text"],
        finish=meta["finish_reason"],
        logprobs=tuple(entry[0] for entry in meta.get("output_token_logprobs") or ()),
        top=tuple(
            tuple((entry[0], entry[1]) for entry in place)
            for place in meta.get("output_top_logprobs") or ()
        ),
        by_id=tuple(
            tuple(entry[0] for entry in place)
            for place in meta.get("output_token_ids_logprobs") or ()
        ),
        cycles=meta.get("spec_verify_ct", 0),
        accepted=tuple(meta.get("spec_correct_drafts_histogram", ())),
        retractions=meta.get("num_retractions", 0),
        reasoning=meta.get("reasoning_tokens", 0),
    )
