"""Exact accept counts of a draft on a few prompts, right capture and wrong ones, for tests.

A wrong capture costs a draft a few percent, which no floor on accept length tells from chance. On
fixed prompts, greedy, in float32, the counts are numbers: any other one is a fault. Only prompts
whose every decision, the draft's and the target's, is clear go into the table, so it holds on any
machine that rounds as float32 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .data import pad
from .evaluate import captures
from .heldout import Row
from .model import Draft
from .replay import replay, walk
from .target import Target

NAME = "accept_counts.json"
STEPS, NEW_TOKENS = 3, 48
CLEAR = 0.02  # of a logit; rounding in float32 moves one by a thousandth at the most


def table(
    target: Target, draft: Draft, rows: Sequence[Row], layers: Sequence[int], count: int = 6
) -> dict[str, Any]:
    """The first `count` clear prompts with their counts under every capture.

    Args:
        target, draft: in float32.

    Returns:
        `num_steps`, `new_tokens`, `prompts` (tokens of each) and `counts`: for each capture its
        layers and a histogram a prompt, as `meta_info` of a server has it.
    """
    asked = {"right": list(layers), **captures(layers, target.shape.layers)}
    prompts: list[list[int]] = []
    found: dict[str, list[list[int]]] = {name: [] for name in asked}
    for row in rows:
        if len(prompts) == count:
            break
        if len(row.answer) < NEW_TOKENS + STEPS + 1 or row.loops:
            continue
        if not _certain(target, row):
            continue
        counted = dict(_counts(target, draft, row, asked))
        if len(counted) == len(asked):
            prompts.append(list(row.prompt))
            for name, histogram in counted.items():
                found[name].append(histogram)
    return {
        "num_steps": STEPS,
        "new_tokens": NEW_TOKENS,
        "prompts": prompts,
        "counts": {name: {"layers": asked[name], "correct_drafts": found[name]} for name in asked},
    }


def counts(
    target: Target, draft: Draft, held: dict[str, Any], rows: Sequence[Row]
) -> dict[str, list[list[int]]]:
    """What a draft's counts are now, by capture, for the prompts of a table."""
    answers = {row.prompt: row for row in rows}
    asked = {name: one["layers"] for name, one in held["counts"].items()}
    found: dict[str, list[list[int]]] = {name: [] for name in asked}
    for prompt in held["prompts"]:
        row = answers[tuple(prompt)]
        for name, guessed, _ in _decided(target, draft, row, asked, held["num_steps"]):
            histogram = replay(len(row.prompt), row.tokens, guessed, NEW_TOKENS).histogram
            found[name].append(list(histogram))
    return found


@torch.no_grad()
def _certain(target: Target, row: Row) -> bool:
    """Whether the target in float32 clearly says every token of the answer that is asked for.

    A held-out answer was made in bfloat16; where two tokens are close, float32 says the other one,
    and a server in float32 goes another way from there.
    """
    begin, count = len(row.prompt) - 1, NEW_TOKENS + STEPS + 1
    ids = pad([row.tokens[: begin + 1 + count]]).to(target.device)
    _, last = target.states(ids, [0])
    best = target.logits(last)[0, begin : begin + count].float().topk(2)
    said = best.indices[:, 0].tolist() == list(row.answer[:count])
    return said and bool((best.values[:, 0] - best.values[:, 1]).min() >= CLEAR)


def _counts(
    target: Target, draft: Draft, row: Row, asked: dict[str, list[int]]
) -> Iterator[tuple[str, list[int]]]:
    """(capture, histogram), up to the first capture with a decision that is not clear."""
    for name, guessed, margins in _decided(target, draft, row, asked, STEPS):
        for at, accepted in walk(len(row.prompt), row.tokens, guessed, NEW_TOKENS):
            for step in range(min(accepted + 1, STEPS)):
                if margins[step][at] < CLEAR:
                    return
        histogram = replay(len(row.prompt), row.tokens, guessed, NEW_TOKENS).histogram
        yield name, list(histogram)


@torch.no_grad()
def _decided(
    target: Target, draft: Draft, row: Row, asked: dict[str, list[int]], steps: int
) -> Iterator[tuple[str, list[list[int]], list[list[float]]]]:
    """For each capture: guesses, and how far each was from being decided the other way, both
    [steps][positions].

    A draft is accepted if it is the answer's token; the margin is the distance of that token's
    logit from the best other one, infinite where the draft does not know the token.
    """
    needed = len(row.prompt) + NEW_TOKENS + steps + 1
    ids = pad([row.tokens[:needed]]).to(target.device)
    taken = sorted({layer for layers in asked.values() for layer in layers})
    joined, _ = target.states(ids, taken)
    parts = dict(zip(taken, joined.chunk(len(taken), -1), strict=True))
    slot = torch.full((target.shape.vocabulary,), -1, device=ids.device)
    slot[draft.tokens] = torch.arange(len(draft.tokens), device=ids.device)
    for name, layers in asked.items():
        states = torch.cat([parts[layer] for layer in layers], -1)
        guessed, margins = [], []
        for step, state in enumerate(draft.unroll(target.embedding, ids, states, steps)):
            logits = draft.logits(state)[0].float()
            wanted = slot[torch.nn.functional.pad(ids[0, 2 + step :], (0, 2 + step))]
            index = wanted.clamp(min=0)[:, None]
            own = logits.gather(1, index)[:, 0]
            others = logits.scatter(1, index, -torch.inf).amax(1)
            margin = torch.where(wanted >= 0, (own - others).abs(), torch.inf)
            guessed.append(draft.tokens[logits.argmax(-1)].tolist())
            margins.append(margin.tolist())
        yield name, guessed, margins
