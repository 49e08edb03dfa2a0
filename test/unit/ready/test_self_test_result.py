"""The comparison with the teacher: what it lets pass and what it does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening.self_test import compare
from sglang.srt.spec_hardening.self_test.plan import TOP_K, Case
from sglang.srt.spec_hardening.self_test.result import Result, SelfTestError, State


def _teacher(values: list[float], best: list[float]) -> SimpleNamespace:
    """A Req whose tokens have log probability `values` where the best TOP_K have `best` and less,
    half a nat a rank."""
    top = [[first - 0.5 * rank for rank in range(TOP_K)] for first in best]
    logprob = SimpleNamespace(
        input_token_logprobs_val=[None, *values], input_top_logprobs_val=[None, *top]
    )
    return SimpleNamespace(logprob=logprob)


GREEDY = Case("greedy", ((1, 2),))
SAMPLED = Case("sampled", ((1, 2),), check="top_k")


def test_the_argmax_and_a_tie_within_rounding_pass() -> None:
    compare.check(GREEDY, [5, 6], _teacher([-0.1, -0.8], [-0.1, -0.5]), tolerance=1.0)


@pytest.mark.parametrize("value", [-3.0, float("nan")])
def test_a_token_that_the_target_would_not_say_is_named(value: float) -> None:
    with pytest.raises(SelfTestError, match="token 6 at output position 1 of 2"):
        compare.check(GREEDY, [5, 6], _teacher([-0.1, value], [-0.1, -0.5]), tolerance=1.0)


def test_a_sampled_token_may_be_any_of_the_top_k() -> None:
    lowest = -0.1 - 0.5 * (TOP_K - 1)
    compare.check(SAMPLED, [5], _teacher([lowest], [-0.1]), tolerance=0.05)
    with pytest.raises(SelfTestError, match="mode sampled"):
        compare.check(SAMPLED, [5], _teacher([lowest - 0.2], [-0.1]), tolerance=0.05)


def test_float32_is_held_closer() -> None:
    assert compare.tolerance_of("torch.float32") < compare.tolerance_of("torch.bfloat16")


def test_constrained_output_must_match() -> None:
    case = Case("grammar", ((1, 2),), check="pattern")
    compare.check_pattern(case, "123456")
    with pytest.raises(SelfTestError, match="12345x"):
        compare.check_pattern(case, "12345x")


DIGITS = frozenset({3, 4})


@pytest.mark.parametrize(
    ("token", "value", "best", "passes"),
    [
        (3, -0.5, {3: -0.5, 9: -0.1}, True),  # 9 is no digit, so the constraint forbids it
        (3, -4.0, {3: -4.0, 4: -0.5}, False),
        (3, float("nan"), {4: -0.5}, False),
        (3, -1.4, {4: -0.5}, True),  # within rounding
        (3, -9.0, {9: -0.1, 8: -0.5}, True),  # nothing is known of other digits
        (7, -9.0, {4: -0.5}, True),  # the end, or several digits in one token
    ],
)
def test_a_constrained_digit_must_be_the_one_that_the_target_would_say(
    token: int, value: float, best: dict[int, float], passes: bool
) -> None:
    logprob = SimpleNamespace(
        input_token_logprobs_val=[None, value],
        input_top_logprobs_val=[None, list(best.values())],
        input_top_logprobs_idx=[None, list(best)],
    )
    case, teacher = Case("grammar", ((1, 2),), check="pattern"), SimpleNamespace(logprob=logprob)
    if passes:
        compare.check_constrained(case, [token], teacher, 1.0, DIGITS)
    else:
        with pytest.raises(SelfTestError, match="mode grammar: digit 3 at output position 0 of 1"):
            compare.check_constrained(case, [token], teacher, 1.0, DIGITS)


def test_only_tokens_that_are_a_digit_alone_count() -> None:
    """A tokenizer names another token, or none, for a digit that it does not have."""
    words = ["<unk>", "▁1", "1", "2", "12"]
    tokenizer = SimpleNamespace(
        convert_tokens_to_ids=lambda word: (
            words.index(word) if word in words else None if word == "9" else 0
        ),
        convert_ids_to_tokens=lambda number: words[number],
    )
    assert compare.digits_of(tokenizer) == {2, 3}


def test_the_log_line_says_what_was_left_out() -> None:
    result = Result(State.PROVEN, "", 1.2, 2.5, 20, ("greedy",), ("grammar (no backend)",))
    assert "accept length 2.50" in result.line and "left out: grammar" in result.line
    assert Result(State.UNPROVEN, "why").line.endswith("unproven: why")
