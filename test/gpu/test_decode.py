"""Greedy EAGLE3 on one GPU equals greedy decoding without it: graphs, overlap, both backends.

The tiny pair's margins are wide enough for bfloat16 to be exact in every batch shape, and its
oracle says what the tokens and the accept lengths must be, so these tests need no second server.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from kit.servers import ServerPool
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle, Plan
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.server import Launch, Speculation

COMMON = (
    *("--mem-fraction-static", "0.15", "--max-total-tokens", "65536"),
    *("--max-running-requests", "128", "--cuda-graph-max-bs-decode", "64"),
    *("--context-length", "2048", "--chunked-prefill-size", "256"),
)


@dataclass(frozen=True)
class Setup:
    """One way to serve; `plan` picks the pair, the rest are flags."""

    name: str
    backend: str = "triton"
    flags: tuple[str, ...] = ()
    plan: Plan = TINY
    speculation: tuple[int, int, int] = (3, 1, 4)
    environment: dict[str, str] = field(default_factory=dict)

    def launch(self) -> Launch:
        pair: Pair = tiny_pair(self.plan)
        steps, topk, tokens = self.speculation
        return Launch(
            pair.target,
            Speculation(pair.draft, steps, topk, tokens),
            "bfloat16",
            (*COMMON, "--attention-backend", self.backend, *self.flags),
            self.environment,
        )


SETUPS = (
    Setup("triton"),
    Setup("triton-some-rejected", plan=TINY_HALF),
    Setup("triton-no-graphs", flags=("--disable-cuda-graph",)),
    Setup("triton-no-overlap", flags=("--disable-overlap-schedule",)),
    Setup("triton-page-16", flags=("--page-size", "16")),
    Setup("triton-tree", speculation=(3, 4, 8)),
    Setup("flashinfer", backend="flashinfer"),
)


@pytest.fixture(params=SETUPS, ids=lambda setup: setup.name, scope="module")
def setup(request: pytest.FixtureRequest) -> Setup:
    found: Setup = request.param
    return found


def prompts(count: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [
        [BOS, *(dice.randrange(SPECIALS, VOCABULARY) for _ in range(dice.randrange(3, 400)))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("batch", [1, 3, 16, 100])  # 100 is above the largest captured graph
def test_tokens_are_the_oracles(servers: ServerPool, setup: Setup, batch: int) -> None:
    client = servers.client(setup.launch())
    asked = prompts(batch, seed=batch)
    answers = client.generate_batch(asked, 48, ignore_eos=True)
    oracle = Oracle(setup.plan)
    assert [list(answer.tokens) for answer in answers] == [oracle.greedy(p, 48) for p in asked]
    assert all(answer.cycles > 0 for answer in answers)


def test_accept_lengths_are_the_oracles(servers: ServerPool, setup: Setup) -> None:
    steps, topk, _ = setup.speculation
    if topk > 1:
        pytest.skip("the oracle counts chains, this server drafts trees")
    client = servers.client(setup.launch())
    (prompt,) = prompts(1, seed=7)
    answer = client.generate(prompt, 64, ignore_eos=True)
    lengths = Oracle(setup.plan).accept_lengths(prompt, 64, steps)
    # The last cycle may be cut short by max_new_tokens; those before it are exact.
    drafts = [length - 1 for length in lengths]
    counted = [drafts[:-1].count(n) for n in range(steps + 1)]
    seen = list(answer.correct_drafts) + [0] * (steps + 1 - len(answer.correct_drafts))
    assert sum(seen) == len(lengths)
    assert sum(abs(a - b) for a, b in zip(seen, counted, strict=True)) <= 1


def test_prefix_hit_and_chunked_prefill(servers: ServerPool, setup: Setup) -> None:
    client = servers.client(setup.launch())
    client.flush_cache()
    dice = random.Random(3)
    start = [BOS, *(dice.randrange(SPECIALS, VOCABULARY) for _ in range(600))]
    oracle = Oracle(setup.plan)
    first = client.generate(start, 32, ignore_eos=True)
    again = client.generate([*start, *first.tokens[:9]], 32, ignore_eos=True)
    assert list(first.tokens) == oracle.greedy(start, 32)
    assert list(again.tokens) == oracle.greedy([*start, *first.tokens[:9]], 32)
    assert again.meta["cached_tokens"] > 500
