"""Greedy acceptance replayed, against decoding that is done step by step."""

from __future__ import annotations

import random

import pytest
from sglang_spec.train import loops
from sglang_spec.train.replay import Acceptance, pool, replay


def decoded(prompt: int, tokens: list[int], guesses: list[list[int]], new_tokens: int) -> list[int]:
    """Correct drafts of each cycle, by an engine that knows only what it has made so far."""
    made, found = tokens[: prompt + 1], []  # prefill makes one token
    while len(made) < prompt + new_tokens:
        start = len(made) - 2  # the last position whose target state is known
        drafts = [step[start] for step in guesses]
        accepted = 0
        for draft in drafts:
            if draft != tokens[len(made)]:
                break
            made.append(draft)
            accepted += 1
        made.append(tokens[len(made)])  # the bonus token
        found.append(accepted)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_equals_decoding(seed: int) -> None:
    draw = random.Random(seed)
    prompt, steps, new = draw.randint(1, 9), draw.randint(1, 5), draw.randint(1, 60)
    tokens = [draw.randrange(3) for _ in range(prompt + new + steps + 1)]
    guesses = [[draw.randrange(3) for _ in tokens] for _ in range(steps)]
    cycles = decoded(prompt, tokens, guesses, new)
    found = replay(prompt, tokens, guesses, new)
    assert list(found.histogram) == [cycles.count(n) for n in range(steps + 1)]


def test_only_whole_cycles_without_a_limit() -> None:
    """Prompt of 2, answer of 6: with three right drafts a cycle makes four tokens, and the second
    cycle would run over the end."""
    tokens = [0, 1, 2, 3, 4, 5, 6, 7]
    right = [[t + 2 + k for t in range(8)] for k in range(3)]
    assert replay(2, tokens, right).histogram == (0, 0, 0, 1)
    assert replay(2, tokens[:6], right).histogram == (0, 0, 0, 0)


def test_figures() -> None:
    both = pool([Acceptance((2, 0, 1)), Acceptance((0, 1))])
    assert both.histogram == (2, 1, 1)
    assert both.cycles == 4
    assert both.accept_length == 1 + 3 / 4
    assert both.by_position == [0.5, 0.25]
    assert Acceptance().accept_length == 0.0


def test_loops() -> None:
    text = list(range(100, 140))
    assert not loops.loops(text)
    assert loops.loop_start(text) is None
    assert loops.cut(text, 4) == text
    looping = [*range(10), *[7, 8, 9] * 9]
    assert loops.loops(looping)
    assert loops.loop_start(looping) == 10
    assert loops.cut(looping, 4) == looping[:14]
    assert loops.loop_start([1, 2, 3, 5, 5, 5]) is None  # too short to be one
    assert loops.repeated_share([1, 2]) == 0.0
