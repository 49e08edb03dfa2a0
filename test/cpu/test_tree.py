"""Draft trees (topk > 1) on the CPU: greedy output equals that without speculation."""

from __future__ import annotations

import json

import pytest
from kit import lossless
from kit.servers import ServerPool
from sglang_spec.models import Pair, held_out
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch, Speculation

TREES = {"2 wide": (3, 2, 6), "4 wide": (4, 4, 16)}


@pytest.mark.parametrize(
    "tree",
    ["4 wide", pytest.param("2 wide", marks=pytest.mark.full)],  # as long again
)
def test_a_tree_of_the_trained_draft(servers: ServerPool, embedded: Pair, tree: str) -> None:
    steps, topk, nodes = TREES[tree]
    rows = [json.loads(line) for line in held_out().read_text().splitlines()]
    prompts = [row["prompt_ids"] for row in rows[5:80:25]]
    base = servers.client(lossless.plain(embedded))
    speculation = Speculation(embedded.draft, steps, topk, nodes)
    flags = (*lossless.FLAGS, "--skip-speculative-self-test")
    spec = servers.client(Launch(embedded.target, speculation, "float32", flags))
    expected = base.generate_batch(prompts, 32, ignore_eos=True)
    found = [
        spec.generate(prompts[0], 32, ignore_eos=True),
        *spec.generate_batch(prompts, 32, ignore_eos=True),
    ]
    assert [a.tokens for a in found] == [a.tokens for a in [expected[0], *expected]]
    assert sum(sum(a.correct_drafts[2:]) for a in found) > 0


def test_a_tree_of_the_tiny_draft_accepts_to_the_end(servers: ServerPool, tiny: Pair) -> None:
    """The right token is the first child everywhere, so every path is accepted whole."""
    prompt = [0, *range(70, 110)]
    spec = servers.client(Launch(tiny.target, Speculation(tiny.draft, 3, 4, 12)))
    answer = spec.generate(prompt, 41, ignore_eos=True)
    assert list(answer.tokens) == Oracle(TINY).greedy(prompt, 41)
    assert answer.correct_drafts == (0, 0, 0, 10)
