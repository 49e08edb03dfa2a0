"""The plan of the tiny pair: no loops, no blind spots, known accept lengths. Needs no torch."""

from __future__ import annotations

import random

import pytest
from sglang_spec.models.cache import ModelError
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle, Plan, faults
from sglang_spec.models.tiny.plan import BOS, CODES, SPECIALS, TARGET_FAULT, VOCABULARY


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [BOS, *(rng.randrange(SPECIALS, VOCABULARY) for _ in range(length - 1))]


def test_every_replaced_token_of_the_window_changes_the_next() -> None:
    oracle, rng = Oracle(TINY), random.Random(0)
    context = prompt(800, 0)
    right = oracle.next_token(context)
    for back in range(TINY.window):
        at = len(context) - 1 - back
        other = rng.choice([t for t in range(SPECIALS, VOCABULARY) if t != context[at]])
        assert oracle.next_token([*context[:at], other, *context[at + 1 :]]) != right, back


def test_every_replacement_at_one_place_changes_the_next() -> None:
    oracle, context = Oracle(TINY), prompt(60, 1)
    for at in (59, 57, 50, 49, 1):  # the own token, two near distances, a far one, the first
        results = {
            oracle.next_token([*context[:at], other, *context[at + 1 :]])
            for other in range(SPECIALS, VOCABULARY)
        }
        assert len(results) == CODES


def test_beyond_the_window_nothing_changes_the_next() -> None:
    oracle, context = Oracle(TINY), prompt(TINY.window + 50, 2)
    changed = [context[0], *(SPECIALS + 1 for _ in range(49)), *context[50:]]
    assert oracle.next_token(changed) == oracle.next_token(context)


@pytest.mark.parametrize("seed", range(40))
def test_answers_do_not_loop(seed: int) -> None:
    tokens = Oracle(TINY).greedy(prompt(1 + seed, seed), 1200)
    tail = tokens[-600:]
    assert len(set(tail)) > 200
    assert not any(tail[period:] == tail[:-period] for period in range(1, 300))


def test_answers_hold_no_special_token() -> None:
    tokens = Oracle(TINY).greedy(prompt(9, 3), 2000)
    assert faults(tokens) == []
    assert faults([SPECIALS, TARGET_FAULT, 300]) == [1]


def test_logits_name_the_greedy_token_with_a_margin_of_eight() -> None:
    oracle, context = Oracle(TINY), prompt(30, 4)
    row = oracle.logits(context)
    best, second = sorted(row, reverse=True)[:2]
    assert row.index(best) == oracle.next_token(context)
    assert (best, second, len(row)) == (32.0, 24.0, VOCABULARY)


def test_accept_lengths_of_the_full_vocabulary_are_always_steps_plus_one() -> None:
    assert Oracle(TINY).accept_lengths(prompt(20, 5), 41, 3) == [4] * 10
    assert Oracle(TINY).accept_lengths(prompt(20, 5), 42, 3) == [4] * 11


def test_accept_lengths_of_the_half_vocabulary_follow_its_tokens() -> None:
    oracle, context, steps, count = Oracle(TINY_HALF), prompt(20, 6), 3, 400
    lengths = oracle.accept_lengths(context, count, steps)
    tokens, known = oracle.greedy(context, count + 4), set(TINY_HALF.draft_tokens)
    at = 1
    for length in lengths:
        drafted = [token in known for token in tokens[at : at + length]]
        assert all(drafted[:-1])
        assert length == steps + 1 or not drafted[-1]
        at += length
    assert set(lengths) == {1, 2, 3, 4}
    assert 1.6 < sum(lengths) / len(lengths) < 2.2  # 1.875 if half of the tokens are known


def test_special_tokens_are_in_every_draft_vocabulary() -> None:
    assert TINY_HALF.draft_tokens[:SPECIALS] == tuple(range(SPECIALS))
    assert len(set(TINY_HALF.draft_tokens)) == SPECIALS + CODES // 2
    assert TINY.draft_tokens == tuple(range(VOCABULARY))


@pytest.mark.parametrize("context", [[], [70], [BOS, 70, BOS]])
def test_contexts_begin_with_the_only_bos(context: list[int]) -> None:
    with pytest.raises(ValueError, match="BOS"):
        Oracle(TINY).next_token(context)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"capture": (1, 3, 4)}, "must increase and end at 5"),
        ({"capture": (3, 1, 5)}, "must increase"),
        ({"near": (2, 3, 4, 5, 6, 7, 8, 10)}, "all different"),
        ({"near": (1, 3, 4, 5, 6, 7, 8, 9)}, "must be in 2 … 728"),
        ({"draft_codes": 100}, "multiple of 8"),
    ],
)
def test_plans_at_odds_are_refused(change: dict, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        Plan(**change)


def test_each_plan_has_its_own_cache_entry() -> None:
    plans = (TINY, TINY_HALF, Plan(seed=1), Plan(capture=(0, 3, 5)))
    assert len({plan.entry_name() for plan in plans}) == len(plans)
