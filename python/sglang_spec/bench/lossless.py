"""Whether answers are those of the reference, token by token, and what explains one that is not.

Greedy output must not depend on speculation. In bfloat16 two likeliest tokens may lie so near to
each other that rounding decides, and batches round differently; such a tie is shown by a prefill
of the same text (which never speculates) on the server that gave the answer, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..client import api_key
from ..demo.equality import first_difference
from ..smoke.target import Settings, Target
from ..smoke.teacher import Unequal, forced
from .traffic import Answer

# A prefill for each difference takes time, so of one measurement only so many are looked into.
MOST_EXAMINED = 6
# Without a reference, so many answers are held against a prefill instead.
SPOT_CHECKS = 3
# Of log-probability: two tokens that are nearer to each other are a tie.
TIE_MARGIN = Settings.tie_margin

# (request, prompt, tokens up to the difference) -> what a prefill says of the last token
Explain = Callable[[int, Sequence[int], Sequence[int]], Unequal | None]


@dataclass(frozen=True)
class Equality:
    """Counts of compared answers; `wrong` has the first differences that no tie explains.

    `examined` says by what: the reference's tokens, or (without one) a prefill of some answers.
    """

    compared: int
    equal: int
    ties: int
    unexamined: int
    wrong: tuple[Mapping[str, Any], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {
            "compared": self.compared,
            "equal": self.equal,
            "ties": self.ties,
            "unexamined": self.unexamined,
            "wrong": [dict(one) for one in self.wrong],
        }

    @property
    def reason(self) -> str | None:
        """Why a measurement with these answers is invalid, or None."""
        if not self.wrong:
            return None
        first = self.wrong[0]
        return (
            f"unequal output: request {first['prompt']}, position {first['position']}: token "
            f"{first['got']} instead of {first['wanted']}, no tie; {len(self.wrong)} such answers"
        )


def compare(
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Answer],
    reference: Mapping[int, Sequence[int]],
    explain: Explain,
) -> Equality:
    """Hold each answer against the reference's; differences are explained by a prefill."""
    if not reference:
        return _spot_checks(prompts, answers, explain)
    equal = ties = unexamined = examined = 0
    wrong: list[Mapping[str, Any]] = []
    compared = [n for n, answer in enumerate(answers) if not answer.error and n in reference]
    for number in compared:
        tokens = answers[number].tokens
        position = first_difference(reference[number], tokens)
        if position is None:
            equal += 1
        elif position >= min(len(tokens), len(reference[number])):
            wrong.append(_shorter(number, position, tokens, reference[number]))
        elif examined >= MOST_EXAMINED:
            unexamined += 1
        else:
            examined += 1
            found = explain(number, prompts[number], tokens[: position + 1])
            if found is None or found.tie:
                ties += 1
            else:
                wrong.append(found.to_json())
    return Equality(len(compared), equal, ties, unexamined, tuple(wrong))


def _spot_checks(
    prompts: Sequence[Sequence[int]], answers: Sequence[Answer], explain: Explain
) -> Equality:
    chosen = [n for n, answer in enumerate(answers) if not answer.error][:SPOT_CHECKS]
    found = [explain(number, prompts[number], answers[number].tokens) for number in chosen]
    wrong = tuple(one.to_json() for one in found if one is not None and not one.tie)
    ties = sum(one is not None and one.tie for one in found)
    return Equality(len(chosen), len(chosen) - ties - len(wrong), ties, 0, wrong)


def _shorter(
    number: int, position: int, tokens: Sequence[int], wanted: Sequence[int]
) -> dict[str, Any]:
    """One answer is the other's beginning: no tie can explain that."""
    return Unequal(
        number,
        position,
        tokens[position] if position < len(tokens) else None,
        wanted[position] if position < len(wanted) else None,
        None,
        False,
    ).to_json()


def by_prefill(url: str, tie_margin: float = TIE_MARGIN) -> Explain:
    """Explanations from the server at `url`; httpx.HTTPError if it does not answer.

    Two tokens whose log-probabilities differ by no more than `tie_margin`, or by two steps of the
    grid of bfloat16, are a tie.
    """

    def explain(number: int, prompt: Sequence[int], tokens: Sequence[int]) -> Unequal | None:
        target = Target(url, Settings(tie_margin=tie_margin), api_key())
        try:
            return forced(target, number, prompt, tokens)
        finally:
            target.close()

    return explain
