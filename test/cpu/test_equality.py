"""Greedy output with EAGLE3 equals greedy output without it, token by token.

Exact in float32 for the embedded pair; the tiny pair has margins so wide that bfloat16 is exact
too. Every test asks two servers that differ in speculation and in nothing else.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import httpx
import pytest
from kit import lossless
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, held_out
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.server import Launch, Speculation

NUM_STEPS = 3
TINY_FLAGS = ("--chunked-prefill-size", str(lossless.CHUNK), "--context-length", "1024")


@dataclass(frozen=True)
class Case:
    """Two servers and prompts of mixed lengths for them."""

    base: Client
    spec: Client
    prompts: list[list[int]]
    long: list[int]  # over three prefill chunks


def _prompts() -> list[list[int]]:
    rows = [json.loads(line) for line in held_out().read_text().splitlines()]
    return [row["prompt_ids"] for row in rows]


@pytest.fixture(scope="module", params=["embedded-float32", "tiny-bfloat16"])
def case(request: pytest.FixtureRequest, servers: ServerPool, embedded: Pair, tiny: Pair) -> Case:
    if request.param == "embedded-float32":
        launches = lossless.launches(embedded)
    else:
        speculation = Speculation(tiny.draft, NUM_STEPS, 1, NUM_STEPS + 1)
        launches = {
            spec: Launch(tiny.target, speculation if spec else None, "bfloat16", TINY_FLAGS)
            for spec in (False, True)
        }
    base, spec = (servers.client(launch) for launch in launches.values())
    texts = _prompts()
    prompts = texts[:60:10]
    long = sorted(texts, key=len)[-1][:330]
    if request.param == "tiny-bfloat16":
        prompts = [[BOS, *map(_tiny_token, prompt[:180])] for prompt in prompts]
        long = [BOS, *map(_tiny_token, long[:250])]
    for client in (base, spec):
        client.flush_cache()
    return Case(base, spec, prompts, long)


def _tiny_token(token: int) -> int:
    """Any token id as an ordinary one of the tiny pair."""
    return SPECIALS + token % (VOCABULARY - SPECIALS)


def both(case: Case, prompt: list[int], new: int = 32, **options: object) -> tuple[int, ...]:
    base = case.base.generate(prompt, new, **options)
    spec = case.spec.generate(prompt, new, **options)
    assert spec.tokens == base.tokens
    assert spec.cycles > 0, "the server did not speculate"
    assert base.cycles == 0
    return spec.tokens


def test_single_requests(case: Case) -> None:
    for prompt in case.prompts[:3]:
        both(case, prompt)


def test_batch_of_mixed_lengths(case: Case) -> None:
    base = case.base.generate_batch(case.prompts, 32)
    spec = case.spec.generate_batch(case.prompts, 32)
    assert [a.tokens for a in spec] == [a.tokens for a in base]
    assert len({len(prompt) for prompt in case.prompts}) > 3


def test_chunked_prefill(case: Case) -> None:
    case.spec.flush_cache()
    assert len(case.long) > 2 * lossless.CHUNK
    both(case, case.long, 32)


def test_prefix_hit(case: Case) -> None:
    """The second request reuses the first one's prompt and part of its answer."""
    start = case.prompts[1]
    answer = both(case, start, 40)
    longer = [*start, *answer[:20], *case.prompts[2][1:9]]
    cached = case.spec.generate(longer, 40)
    assert cached.meta["cached_tokens"] >= len(start)
    assert cached.tokens == case.base.generate(longer, 40).tokens
    case.spec.flush_cache()
    fresh = case.spec.generate(longer, 40)
    assert fresh.meta["cached_tokens"] == 0
    assert fresh.tokens == cached.tokens
    # A hole in the draft's cache would leave the tokens right and lower the acceptance.
    assert fresh.correct_drafts == cached.correct_drafts


def test_streaming(case: Case) -> None:
    prompt = case.prompts[0]
    whole = both(case, prompt, 40)
    streamed: list[int] = []
    for _ in range(20):  # what has to wait for its reader is joined, on a busy host all of it
        chunks = 0
        with httpx.stream(
            "POST",
            f"{case.spec._http.base_url}/generate",
            json={
                "input_ids": prompt,
                "sampling_params": {"temperature": 0, "max_new_tokens": 40},
                "stream": True,
            },
            timeout=600,
        ) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    streamed = json.loads(line[6:])["output_ids"]
                    assert tuple(streamed) == whole[: len(streamed)]
                    chunks += 1
        assert tuple(streamed) == whole
        if chunks > 3:
            return
    raise AssertionError("no answer came as it was made")


def test_abort_in_the_middle(case: Case) -> None:
    """An aborted neighbour changes nothing, and its KV cache comes back."""
    prompt = case.prompts[3]
    want = case.base.generate(prompt, 48).tokens
    url = f"{case.spec._http.base_url}/generate"
    body = {
        "input_ids": case.prompts[4],
        "rid": "to-abort",
        "sampling_params": {"temperature": 0, "max_new_tokens": 600, "ignore_eos": True},
        "stream": True,
    }
    with httpx.stream("POST", url, json=body, timeout=600) as neighbour:
        lines = neighbour.iter_lines()
        next(lines)
        case.spec.post("/abort_request", rid="to-abort").raise_for_status()
        assert case.spec.generate(prompt, 48).tokens == want
        list(lines)
    assert _idle_within(case.spec, 120.0)
    assert case.spec.generate(prompt, 48).tokens == want


def _idle_within(client: Client, seconds: float) -> bool:
    """Whether the running requests drain; `/flush_cache` refuses while any are left."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if client.post("/flush_cache").status_code == 200:
            return True
        time.sleep(0.1)
    return False
