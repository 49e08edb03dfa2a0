"""The server under test: its connection, its answers, what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx

QUESTIONS = ("What is 2+2? Answer briefly.", "Say hello in one word.")
# Longer answers than the questions give, so that most cycles lie inside a run of text.
PROMPTS = (
    "Write a short story about a lighthouse keeper who finds a letter.",
    "List the planets of the solar system, one line each.",
    "Explain how a bicycle stays upright.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Repeat this sentence five times: the quick brown fox jumps over the lazy dog.",
    "What are three advantages of trains over cars?",
)


@dataclass(frozen=True)
class Settings:
    """What a person can choose; lengths and bounds in tokens, `timeout` in seconds."""

    questions: Sequence[str] = QUESTIONS
    prompts: Sequence[str] = PROMPTS
    max_new_tokens: int = 64
    min_accept_length: float = 1.2
    tie_margin: float = 0.25
    parallel: int = 8
    long_tokens: int | None = None
    baseline: str | None = None
    timeout: float = 120.0
    speculation: bool = True


@dataclass(frozen=True)
class Generated:
    """One finished `/generate`: token ids, text, and the request's own speculation counters."""

    tokens: tuple[int, ...]
    text: str
    cycles: int
    correct_drafts: tuple[int, ...]
    meta: dict[str, Any]


class Target:
    """A connection to one server. Errors of the transport and HTTP errors are httpx's."""

    def __init__(self, url: str, settings: Settings, api_key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.url = url
        self.settings = settings
        self.http = httpx.Client(base_url=url, timeout=settings.timeout, headers=headers)

    @cached_property
    def info(self) -> dict[str, Any]:
        """`/server_info`, asked once."""
        reply = self.http.get("/server_info")
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def ids(self, question: str) -> list[int]:
        """Token ids of the question in the server's own chat template (plain text without one)."""
        messages = [{"role": "user", "content": question}]
        reply = self.http.post("/tokenize", json={"messages": messages})
        if reply.status_code == 400:
            reply = self.http.post("/tokenize", json={"prompt": question})
        reply.raise_for_status()
        return list(reply.json()["tokens"])

    def chat(self, question: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
        """One greedy `/v1/chat/completions`; the whole reply."""
        reply = self.http.post(
            "/v1/chat/completions",
            json={
                "model": self.info.get("served_model_name") or "default",
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": max_tokens,
                **fields,
            },
        )
        reply.raise_for_status()
        body: dict[str, Any] = reply.json()
        return body

    def generate(self, ids: Sequence[int], max_new_tokens: int, **fields: Any) -> Generated:
        """One greedy `/generate` of token ids."""
        reply = self.http.post("/generate", json=self.request(ids, max_new_tokens, **fields))
        reply.raise_for_status()
        body = reply.json()
        meta = body["meta_info"]
        return Generated(
            tuple(body["output_ids"]),
            body.get("text", ""),
            meta.get("spec_verify_ct", 0),
            tuple(meta.get("spec_correct_drafts_histogram", ())),
            meta,
        )

    @staticmethod
    def request(ids: Sequence[int], max_new_tokens: int, **fields: Any) -> dict[str, Any]:
        sampling = {"temperature": 0, "max_new_tokens": max_new_tokens}
        return {"input_ids": list(ids), "sampling_params": sampling, **fields}

    def close(self) -> None:
        self.http.close()
