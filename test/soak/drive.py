"""Sends requests of a soak: so many at once, streams, clients that leave on their way."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from .case import Case

SOON = 0.01  # seconds: an abort that finds its request in the queue or in prefill


@dataclass(frozen=True)
class Outcome:
    """What came back; `tokens` of a client that left are those it saw.

    `error` is empty, or what HTTP or the server said instead of an answer.
    """

    number: int
    tokens: tuple[int, ...] = ()
    finish: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def drive(url: str, cases: Sequence[Case], at_once: int, timeout: float) -> list[Outcome]:
    """All outcomes in the order of the cases; requests start in that order.

    Args:
        timeout: seconds without a byte after which a request counts as hanging.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=at_once)
    with (
        httpx.Client(base_url=url, timeout=timeout, limits=limits) as http,
        ThreadPoolExecutor(min(at_once, len(cases))) as pool,
    ):
        return list(pool.map(lambda case: _send(http, case), cases))


def _send(http: httpx.Client, case: Case) -> Outcome:
    rid = f"soak-{case.number}-{uuid.uuid4().hex[:12]}"
    body: dict[str, Any] = {
        "input_ids": list(case.prompt),
        "sampling_params": {"max_new_tokens": case.new, **case.sampling},
        "rid": rid,
        "stream": case.stream,
    }
    if case.logprobs:
        body |= {"return_logprob": True, "top_logprobs_num": case.logprobs}
    try:
        if case.stream:
            return _stream(http, case, rid, body)
        reply = http.post("/generate", json=body)
        if reply.status_code != 200:
            return Outcome(case.number, error=f"HTTP {reply.status_code}: {reply.text[:200]}")
        return _outcome(case, reply.json())
    except (httpx.HTTPError, ValueError) as error:
        return Outcome(case.number, error=f"{type(error).__name__}: {error}"[:300])


def _outcome(case: Case, chunk: dict[str, Any]) -> Outcome:
    if "error" in chunk:
        return Outcome(case.number, error=json.dumps(chunk["error"])[:300])
    meta = chunk["meta_info"]
    tokens = tuple(chunk.get("output_ids") or ())  # none if aborted in the queue
    return Outcome(case.number, tokens, meta.get("finish_reason") or {}, meta)


def _stream(http: httpx.Client, case: Case, rid: str, body: dict[str, Any]) -> Outcome:
    last = Outcome(case.number)
    asked = False

    def abort() -> None:
        http.post("/abort_request", json={"rid": rid})

    timer = threading.Timer(SOON, abort)
    if case.leave == "abort" and case.leave_after == 0:
        timer.start()
        asked = True
    try:
        with http.stream("POST", "/generate", json=body) as reply:
            if reply.status_code != 200:
                text = reply.read().decode(errors="replace")
                return Outcome(case.number, error=f"HTTP {reply.status_code}: {text[:200]}")
            if case.leave == "disconnect" and case.leave_after == 0:
                return last
            for chunk in _chunks(reply):
                last = _outcome(case, chunk)
                left = case.leave and len(last.tokens) >= case.leave_after
                if left and case.leave == "disconnect":
                    return last
                if left and not asked and not last.finish:
                    asked = True
                    abort()
    finally:
        if timer.ident is not None:
            timer.join()
    if not last.finish and not last.error:
        return Outcome(case.number, last.tokens, error="the stream ended without a finish reason")
    return last


def _chunks(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)
