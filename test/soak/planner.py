"""Random requests from a seed; each round can be planned again without the ones before it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .case import Case

Answers = Callable[[tuple[int, ...], int], list[int]]  # greedy tokens after a prompt
STEMS = 8


@dataclass(frozen=True)
class Limits:
    """What requests may be like.

    Attributes:
        lowest, highest: ordinary token ids, both included.
        start: what every prompt begins with.
        prompt, new: the most tokens of a prompt and of an answer.
        at_once: numbers of requests in flight that a round may have.
    """

    lowest: int
    highest: int
    start: tuple[int, ...] = ()
    prompt: int = 400
    new: int = 160
    at_once: tuple[int, ...] = (1, 2, 4, 8, 12, 16)


@dataclass(frozen=True)
class Round:
    number: int
    at_once: int
    cases: tuple[Case, ...]


class Planner:
    """`answers`, where it is known beforehand, lets prompts go on where answers ended."""

    def __init__(self, seed: int, limits: Limits, answers: Answers | None = None) -> None:
        self.seed = seed
        self.limits = limits
        self._answers = answers
        dice = random.Random(f"stems {seed}")
        self._stems = [self._tokens(dice, self._length(dice, 100, 0.75)) for _ in range(STEMS)]

    def round(self, number: int, size: int) -> Round:
        """Round `number`; every fourth is heavy: long answers, as many at once as there may be."""
        dice = random.Random(f"round {self.seed} {number}")
        heavy = number % 4 == 2
        at_once = max(self.limits.at_once) if heavy else dice.choice(self.limits.at_once)
        cases: list[Case] = []
        for index in range(size):
            cases.append(self._case(dice, number * size + index, heavy, cases, at_once))
        return Round(number, at_once, tuple(cases))

    def _case(
        self, dice: random.Random, number: int, heavy: bool, before: list[Case], at_once: int
    ) -> Case:
        prompt = self._prompt(dice, before[: -2 * at_once])
        most = self.limits.new
        new = dice.randint(most // 2, most) if heavy else self._log_uniform(dice, 1, most)
        stream = dice.random() < 0.35
        leave = dice.choice(("abort", "disconnect")) if stream and dice.random() < 0.4 else ""
        return Case(
            number,
            prompt,
            new,
            self._sampling(dice),
            stream,
            leave,
            dice.randint(0, new // 2) if leave else 0,
            dice.randint(1, 4) if dice.random() < 0.12 else 0,
        )

    def _prompt(self, dice: random.Random, before: list[Case]) -> tuple[int, ...]:
        """Fresh, or with a start that others have, or what an earlier request was answered."""
        kind = dice.random()
        if kind < 0.2 and self._answers is not None:
            known = [case for case in before if case.greedy and not case.leave]
            if known:
                earlier = dice.choice(known)
                tokens = earlier.cut(self._answers(earlier.prompt, earlier.new))
                kept = tokens[: dice.randint(1, len(tokens))]
                longer = (*earlier.prompt, *kept, *self._tokens(dice, dice.randint(0, 3)))
                if len(longer) <= self.limits.prompt + self.limits.new:
                    return longer
        if kind < 0.6:
            stem = dice.choice(self._stems)
            shared = stem[: dice.randint(1, len(stem))]
            own = min(40, max(1, self.limits.prompt // 4))
            return (*self.limits.start, *shared, *self._tokens(dice, dice.randint(1, own)))
        length = self._log_uniform(dice, 2, self.limits.prompt - len(self.limits.start))
        return (*self.limits.start, *self._tokens(dice, length))

    def _sampling(self, dice: random.Random) -> dict[str, Any]:
        stops = {}
        if dice.random() < 0.25:
            stops = {"stop_token_ids": list(self._tokens(dice, dice.randint(1, 3)))}
        kind = dice.random()
        if kind < 0.55:
            return {"temperature": 0, **stops}
        if kind < 0.6:
            return {"temperature": round(dice.uniform(0.3, 2), 2), "top_k": 1, **stops}
        found: dict[str, Any] = {"temperature": round(dice.uniform(0.3, 4), 2), **stops}
        if dice.random() < 0.5:
            found["top_k"] = dice.choice((2, 20, 50))
        if dice.random() < 0.5:
            found["top_p"] = dice.choice((0.5, 0.8, 0.95))
        if dice.random() < 0.25:
            found["min_p"] = dice.choice((0.02, 0.1))
        if dice.random() < 0.2:
            found["frequency_penalty"] = dice.choice((0.2, 1.0))
        if dice.random() < 0.2:
            found["presence_penalty"] = dice.choice((0.2, 1.0))
        return found

    def _tokens(self, dice: random.Random, count: int) -> tuple[int, ...]:
        return tuple(dice.randint(self.limits.lowest, self.limits.highest) for _ in range(count))

    def _length(self, dice: random.Random, least: int, share: float) -> int:
        most = int(self.limits.prompt * share)
        return dice.randint(min(least, most), most)

    @staticmethod
    def _log_uniform(dice: random.Random, least: int, most: int) -> int:
        return min(most, round(float(least * (most / least) ** dice.random())))
