"""Verify steps and plain steps of one server count what requests put out as one.

Requests come, go and are retracted between steps of any kind, and under overlap the host learns of
each step when the next has been launched.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.verify_steps import EOS, PROMPT, VOCABULARY, Batch, Request, Verify, chains, judged
from sglang.srt.spec_hardening.fidelity import ledger
from sglang.srt.spec_hardening.fidelity import window as fidelity

ASKED: list[dict[str, Any]] = [
    {},
    {"frequency_penalty": 0.75},
    {"presence_penalty": 1.5, "min_new_tokens": 4},
    {"repetition_penalty": 1.3},
    {"min_new_tokens": 6},
    {"min_new_tokens": 15, "stop_token_ids": [11, 12]},
    {"frequency_penalty": -0.5, "presence_penalty": 0.5, "repetition_penalty": 0.8},
]
# Few different tokens, so that they repeat in a window and before it.
SAID = (0, 5, 6, EOS, 40, 11)


class Life:
    """A request, all that it has put out, and what of it the host has not been told."""

    def __init__(self, token: int, asked: dict[str, Any]) -> None:
        self.req = Request([], max_new_tokens=99, **asked)
        self.req.kv.kv_committed_len = len(PROMPT)
        self.output = [token]
        self._untold = [([token], 0)]

    def put_out(self, tokens: list[int]) -> None:
        self.output += tokens
        self._untold.append((tokens, len(tokens)))

    def tell(self, steps_late: int) -> None:
        """Tell the host of all but so many of the last steps."""
        while len(self._untold) > steps_late:
            tokens, written = self._untold.pop(0)
            self.req.output_ids.extend(tokens)
            self.req.kv.kv_committed_len += written

    def retract(self, token: int) -> None:
        """Prefilled again with what the host knew; the prefill puts out `token`."""
        self.req.retraction_count += 1
        self.req.kv.kv_committed_len = len(PROMPT) + len(self.req.output_ids)
        self.output = [*self.req.output_ids, token]
        self._untold = [([token], 0)]


def plain_step(lives: list[Life]) -> None:
    logits = torch.randn(len(lives), VOCABULARY)
    before = logits.clone()
    tokens = torch.tensor([one.output[-1] for one in lives])
    fidelity.plain_step(Batch([one.req for one in lives]), tokens, logits)  # type: ignore[arg-type]
    for row, one in enumerate(lives):
        expected = judged(one.req, one.output, before[row])
        torch.testing.assert_close(logits[row], expected, rtol=1e-6, atol=1e-6)


def verify_step(lives: list[Life], verify: Verify, accepted: list[list[int]]) -> None:
    nodes = verify.draft_token_num
    logits = torch.randn(len(lives) * nodes, VOCABULARY)
    before = logits.clone()
    window = fidelity.open_window(verify, Batch([one.req for one in lives]), logits)  # type: ignore[arg-type]
    if window is not None:
        window.penalize(logits)
    for row, node in verify.nodes():
        output = [*lives[row].output, *verify.way(row, node)]
        expected = judged(lives[row].req, output, before[row * nodes + node])
        torch.testing.assert_close(logits[row * nodes + node], expected, rtol=1e-6, atol=1e-6)
    if window is not None:
        index = torch.full((len(lives), verify.max_tree_depth), -1, dtype=torch.int32)
        for row, way in enumerate(accepted):
            index[row, : len(way)] = torch.tensor(way) + row * nodes
        window.close(index, torch.tensor([len(way) for way in accepted]))


def drawn_verify(dice: random.Random, lives: list[Life], width: int, topk: int) -> Verify:
    tokens = [[one.output[-1], *dice.choices(SAID, k=width)] for one in lives]
    if topk == 1:
        return chains(tokens)
    parents = [[0, *(dice.randrange(n) for n in range(1, width + 1))] for _ in lives]
    return Verify(tokens, parents, tree_topk=dice.choice([width, -1]))


def way_through(dice: random.Random, parents: list[int]) -> list[int]:
    """Nodes that are accepted, root first."""
    way = [0]
    while children := [n for n in range(1, len(parents)) if parents[n] == way[-1]]:
        if dice.random() < 0.3:
            break
        way.append(dice.choice(children))
    return way


def step(dice: random.Random, lives: list[Life], width: int, topk: int) -> None:
    """One step of either kind, and what comes out of it."""
    if dice.random() < 0.5:
        plain_step(lives)
        for one in lives:
            one.put_out([dice.choice(SAID)])
        return
    verify = drawn_verify(dice, lives, width, topk)
    accepted = [way_through(dice, parents) for parents in verify.parents]
    verify_step(lives, verify, accepted)
    for row, one in enumerate(lives):
        one.put_out([*(verify.tokens[row][n] for n in accepted[row][1:]), dice.choice(SAID)])


def between(dice: random.Random, lives: list[Life]) -> list[Life]:
    """The next batch: some gone, some new, some retracted and back in another place."""
    kept = [one for one in lives if dice.random() < 0.9]
    back = [one for one in kept if dice.random() < 0.1]
    for one in back:
        one.retract(dice.choice(SAID))
    new = [Life(dice.choice(SAID), dice.choice(ASKED)) for _ in range(dice.choice([0, 0, 1, 2]))]
    return [*(one for one in kept if one not in back), *back, *new]


@pytest.mark.parametrize("steps_late", [0, 1], ids=["host-knows", "host-is-late"])
@pytest.mark.parametrize("topk", [1, 2], ids=["chain", "tree"])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 5))
def test_steps_of_both_kinds_judge_as_plain_decoding_would(
    steps_late: int, topk: int, seed: int, width: int
) -> None:
    dice = random.Random(seed)
    torch.manual_seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fidelity, "_BOOKS", {})
        patch.setattr(ledger, "WIDTH", 3)
        patch.setattr(ledger, "GRAIN", 1)
        lives = [Life(dice.choice(SAID), asked) for asked in dice.choices(ASKED, k=3)]
        for _ in range(12):
            for one in lives:
                one.tell(steps_late)
            if lives:
                step(dice, lives, width, topk)
            if dice.random() < 0.5:
                lives = between(dice, lives)
