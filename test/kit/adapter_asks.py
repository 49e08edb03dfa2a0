"""Requests with one adapter, another and none in each batch, across the batch threshold.

The draft knows no adapter, so that drafts are accepted and rejected. Judge is a server without
speculation that serves the same adapters.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from sglang_spec.client import Client

from . import adapters
from .crossing import Crossing, prompt, requests

NAMES = ("a", "b", None)
PROMPTS = [prompt(60 + number, 12 + 9 * number) for number in range(9)]
LENGTHS = [20 + 11 * number for number in range(9)]
ASKED = [NAMES[number % 3] for number in range(9)]
Answers = list[tuple[int, ...]]


def flags(folder: Path, checkpoint: Path, backend: str) -> tuple[str, ...]:
    """The flags of a server of two adapters, which are written into `folder`."""
    for seed, name in enumerate(("a", "b")):
        adapters.write(folder / name, checkpoint, seed, 0.5)
    loaded = [f"{name}={folder / name}" for name in ("a", "b")]
    return ("--enable-lora", "--lora-backend", backend, "--lora-paths", *loaded)


def ask(client: Client, **fields: object) -> Answers:
    """The answers to all requests, sent together."""
    answers = requests(client, PROMPTS, LENGTHS, lora_path=ASKED, **fields)
    return [answer.tokens for answer in answers]


def check_apart(expected: Answers, client: Client) -> None:
    """Adapters matter: without any the same prompts have other answers, and the rest the same."""
    bare = [answer.tokens for answer in requests(client, PROMPTS, LENGTHS)]
    for name, with_it, without in zip(ASKED, expected, bare, strict=True):
        assert (with_it == without) == (name is None)


def check_answers(server: Crossing, plan: str, expected: Answers) -> None:
    """Under the plan all answers are the expected ones, beside requests that are aborted."""
    server.client.flush_cache()
    server.plan(plan)
    rid = f"abort-{plan.replace(' ', '-')}"
    other = Client(server.server.url)
    ended: list[Any] = []

    def ask_alone() -> None:
        answers = requests(other, [prompt(5, 30)], [400], rid=[rid], lora_path=["b"])
        ended.extend(answer.meta["finish_reason"]["type"] for answer in answers)

    lone = threading.Thread(target=ask_alone)
    lone.start()
    timer = threading.Timer(0.3, lambda: server.client.post("/abort_request", rid=rid))
    timer.start()
    found = ask(server.client)
    timer.join()
    lone.join()
    other.close()
    assert found == expected, "other answers"
    assert ended == ["abort"]  # it ran when it was aborted


def check_draft_kv(server: Crossing, plan: str, tolerance: float) -> None:
    """The draft's KV after the plan is that of a run that was never off, whoever is adapted."""
    rows = {}
    for words in ("on", plan):
        server.client.flush_cache()
        server.plan(words)
        rids = [f"kv-{words.replace(' ', '-')}-{number}" for number in range(len(PROMPTS))]
        ask(server.client, rid=rids)
        rows[words] = [server.draft_kv(rid) for rid in rids]
    for number, (right, found) in enumerate(zip(rows["on"], rows[plan], strict=True)):
        length = min(len(right["k"]), len(found["k"]))
        assert length > len(PROMPTS[number]) + 1
        for name in ("k", "v"):
            atol = tolerance * float(np.abs(right[name]).max())
            message = f"draft {name} of request {number}"
            np.testing.assert_allclose(
                found[name][:length], right[name][:length], rtol=0, atol=atol, err_msg=message
            )
