"""Requests to a running server: tokens in, tokens and speculation figures out."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

KEY_VARIABLE = "SGLANG_API_KEY"


def api_key() -> str | None:
    """The key of servers that run already, from the environment; it is written nowhere."""
    return os.environ.get(KEY_VARIABLE) or None


def key_headers() -> dict[str, str]:
    """The header that such a server wants; empty without a key."""
    key = api_key()
    return {"Authorization": f"Bearer {key}"} if key else {}


@dataclass(frozen=True)
class Answer:
    """One finished generation.

    `cycles` is the number of verify calls and `correct_drafts[i]` how many of them accepted
    exactly i drafts (empty without speculation); `seconds` is the wall time of the request.
    """

    tokens: tuple[int, ...]
    text: str
    seconds: float
    cycles: int
    correct_drafts: tuple[int, ...]
    finish: str
    meta: dict[str, Any]

    @property
    def tok_s(self) -> float:
        return len(self.tokens) / self.seconds


def _answer(body: dict[str, Any], seconds: float) -> Answer:
    meta = body["meta_info"]
    return Answer(
        tokens=tuple(body["output_ids"]),
        text=body.get("text", ""),
        seconds=seconds,
        cycles=meta.get("spec_verify_ct", 0),
        correct_drafts=tuple(meta.get("spec_correct_drafts_histogram", ())),
        finish=(meta.get("finish_reason") or {}).get("type", ""),
        meta=meta,
    )


class Client:
    """A keep-alive connection to one server's native and OpenAI endpoints."""

    def __init__(self, url: str, timeout: float = 600.0) -> None:
        # The server closes a connection that was idle for 5 seconds, which is httpx's own default
        # too: a request may then go out on one that is just being closed.
        limits = httpx.Limits(max_connections=100, keepalive_expiry=2.0)
        self._http = httpx.Client(base_url=url, timeout=timeout, limits=limits)

    def generate(self, prompt_ids: Sequence[int], max_new_tokens: int, **options: Any) -> Answer:
        """One `/generate` call; `options` that name a request field go there, the rest are
        sampling parameters. Greedy unless they say otherwise."""
        return self.generate_batch([prompt_ids], max_new_tokens, **options)[0]

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **options: Any
    ) -> list[Answer]:
        """All prompts in one call: the server runs them as one batch."""
        request_fields = ("return_logprob", "top_logprobs_num", "token_ids_logprob", "rid")
        fields = {key: options.pop(key) for key in request_fields if key in options}
        sampling = {"temperature": 0, "max_new_tokens": max_new_tokens, **options}
        reply = self._http.post(
            "/generate",
            json={"input_ids": [list(p) for p in prompts], "sampling_params": sampling, **fields},
        )
        reply.raise_for_status()
        return [_answer(body, reply.elapsed.total_seconds()) for body in reply.json()]

    def chat(self, question: str, max_tokens: int = 64) -> dict[str, Any]:
        """One greedy `/v1/chat/completions` call; the whole reply."""
        reply = self._http.post(
            "/v1/chat/completions",
            json={
                "model": "default",
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": max_tokens,
            },
        )
        reply.raise_for_status()
        body: dict[str, Any] = reply.json()
        return body

    def flush_cache(self, seconds: float = 30.0) -> None:
        """Forget all cached prefixes, so that the next prompt is prefilled in full.

        The server refuses (400) while a request is on its way out; that is waited for.
        """
        deadline = time.monotonic() + seconds
        while (reply := self._http.post("/flush_cache")).status_code == 400:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        reply.raise_for_status()

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self._http.post(path, json=body)

    def close(self) -> None:
        self._http.close()
