"""What is compared in a run: servers that the tool starts, or that run already."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from ..client import key_headers
from ..server import Launch
from . import mask


@dataclass(frozen=True)
class Side:
    """A server under its name in the results: `launch` to start it, or `url` of one that runs.

    `flags` is what makes it different from the others, as it would be typed.
    """

    name: str
    launch: Launch | None = None
    url: str | None = None
    flags: str = ""

    def __post_init__(self) -> None:
        if (self.launch is None) == (self.url is None):
            raise ValueError(f"side {self.name}: give a launch or a URL, and not both")

    def settings(self) -> dict[str, Any]:
        """What must be equal for measurements of two visits to be put together."""
        if self.launch is None:
            return {"url": self.url}
        command = self.launch.command(0)
        variables = " ".join(
            mask.variable(k, v) for k, v in sorted(self.launch.environment.items())
        )
        shown = mask.words(command[command.index("-m") :])
        told = {"command": shlex.join(shown), "environment": variables}
        if self.launch.python != (sys.executable,):
            told["python"] = shlex.join(self.launch.python)
        return told


@dataclass(frozen=True)
class Facts:
    """What a server says of itself in `/server_info`.

    `pauses`: it may decode without speculation (a batch threshold, upstream's adaptive mode), so
    that no verify cycle at all is no fault. `forced`: its acceptance is simulated, its output no
    answer. Counts are None where the server does not say.
    """

    algorithm: str | None
    num_steps: int | None
    topk: int | None
    num_draft_tokens: int | None
    pauses: bool
    kv_tokens: int | None
    most_requests: int | None
    memory: Mapping[str, Any]
    threshold: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Facts:
        state = (info.get("internal_states") or [{}])[0]
        memory = state.get("memory_usage") or {}
        threshold = state.get("batch_threshold") or {}
        speculates = bool(info.get("speculative_algorithm"))

        def given(name: str) -> Any:
            return info.get(f"speculative_{name}") if speculates else None

        return cls(
            algorithm=info.get("speculative_algorithm"),
            num_steps=given("num_steps"),
            topk=given("eagle_topk"),
            num_draft_tokens=given("num_draft_tokens"),
            pauses=bool(threshold) or bool(given("adaptive")),
            kv_tokens=memory.get("token_capacity") or info.get("max_total_num_tokens"),
            most_requests=state.get("effective_max_running_requests_per_dp")
            or info.get("max_running_requests"),
            memory=memory,
            threshold=threshold,
            provenance={
                "version": info.get("version"),
                "model": info.get("model_path"),
                "draft": given("draft_model_path"),
                **dict((info.get("spec_hardening") or {}).get("provenance") or {}),
            },
        )


def checked_url(url: str) -> str:
    """`url` without a slash at its end; ValueError if its host or port is none."""
    try:
        if not urlsplit(url).hostname:
            raise ValueError("it names no host")
        urlsplit(url).port  # noqa: B018  (ValueError for one that is out of range)
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from error
    return url.rstrip("/")


def ask(url: str) -> Facts:
    """The facts of the server at `url`; httpx.HTTPError if it does not tell them.

    A server that wants a key gets SGLANG_API_KEY.
    """
    reply = httpx.get(f"{url}/server_info", timeout=60, headers=key_headers())
    return Facts.of(reply.raise_for_status().json())


def refusals(facts: Facts, kv_tokens: int, requests: int) -> list[str]:
    """Why a load of so many KV entries and requests at a time would not be what it says it is."""
    found = []
    if facts.most_requests and requests > facts.most_requests:
        found.append(
            f"{requests} at a time, but the server runs {facts.most_requests} and queues the rest "
            "(--max-running-requests)"
        )
    if facts.kv_tokens and kv_tokens > facts.kv_tokens:
        found.append(
            f"{kv_tokens} KV entries are needed at once and the server has {facts.kv_tokens}: "
            "requests would wait or be retracted (--max-total-tokens, --mem-fraction-static)"
        )
    return found


def names(sides: Sequence[Side]) -> list[str]:
    """Their names; ValueError if two are the same."""
    found = [side.name for side in sides]
    for name in found:
        if found.count(name) > 1:
            raise ValueError(f"two sides are called {name}")
    return found
