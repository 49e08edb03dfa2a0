"""Hold what was decoded against a teacher-forced prefill of the same tokens.

Two ways to the same distribution: through draft, verify and the KV cache token by token, and
through one prefill of prompt plus output with an empty cache. They may differ by rounding, so a
greedy token that is not the teacher's argmax has to be within `tolerance` of it, in nats.
"""

from __future__ import annotations

import re
from typing import Any

from .plan import PATTERN, TOP_K, Case
from .result import SelfTestError

# Log-probability distance that rounding explains. A wrong mask, position or cache entry moves the
# distribution by whole nats within a few tokens.
TOLERANCE = {"float32": 0.05}
TOLERANCE_ELSEWHERE = 1.0


def tolerance_of(dtype: str) -> float:
    return TOLERANCE.get(dtype.removeprefix("torch."), TOLERANCE_ELSEWHERE)


def check(case: Case, output: list[int], teacher: Any, tolerance: float) -> None:
    """SelfTestError if `output` is not what the model would say.

    `teacher` is the finished Req of the teacher-forced prefill of prompt + `output`.
    """
    values = teacher.logprob.input_token_logprobs_val[-len(output) :]
    best = teacher.logprob.input_top_logprobs_val[-len(output) :]
    for position, (token, value, top) in enumerate(zip(output, values, best, strict=True)):
        floor = top[0] if case.check == "argmax" else top[min(TOP_K, len(top)) - 1]
        if not value >= floor - tolerance:
            raise SelfTestError(
                f"mode {case.name}: token {token} at output position {position} of {len(output)} "
                f"has log probability {value:.2f} in a plain prefill of the same text, where "
                f"{'the best' if case.check == 'argmax' else f'number {TOP_K}'} has {floor:.2f}; "
                "speculative decoding does not give the target's output (attention mask, KV cache "
                "or positions of the verify)"
            )


def check_constrained(
    case: Case, output: list[int], teacher: Any, tolerance: float, digits: frozenset[int]
) -> None:
    """SelfTestError if the constraint let a digit through that the model would not say first.

    `digits` are the tokens of one digit each, all of which `PATTERN` allows wherever it allows one.
    Of those the ones among the teacher's best `TOP_K` are looked at; where none is, or the output
    has another token, nothing is said.
    """
    values = teacher.logprob.input_token_logprobs_val[-len(output) :]
    tops = teacher.logprob.input_top_logprobs_val[-len(output) :]
    names = teacher.logprob.input_top_logprobs_idx[-len(output) :]
    for position, token in enumerate(output):
        best = [
            value
            for name, value in zip(names[position], tops[position], strict=True)
            if name in digits
        ]
        if token in digits and best and not values[position] >= max(best) - tolerance:
            raise SelfTestError(
                f"mode {case.name}: digit {token} at output position {position} of {len(output)} "
                f"has log probability {values[position]:.2f} in a plain prefill of the same text, "
                f"where another has {max(best):.2f}; grammar and verify disagree"
            )


def digits_of(tokenizer: Any) -> frozenset[int]:
    """The ids of the tokens that are one digit and nothing else; none without such tokens."""
    known = {digit: tokenizer.convert_tokens_to_ids(digit) for digit in "0123456789"}
    return frozenset(
        number
        for digit, number in known.items()
        if number is not None and tokenizer.convert_ids_to_tokens(number) == digit
    )


def check_pattern(case: Case, text: str) -> None:
    """SelfTestError if constrained output breaks its constraint."""
    if re.fullmatch(PATTERN, text.strip()) is None:
        raise SelfTestError(
            f"mode {case.name}: {text!r} does not match {PATTERN}; grammar and verify disagree"
        )
