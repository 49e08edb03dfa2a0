"""Makes a failing set of requests small: fewer requests first, then simpler ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .case import Case

Fails = Callable[[Sequence[Case]], bool]


@dataclass(frozen=True)
class Shrunk:
    """`repeats` False: the same requests did not fail again, so they are as they were."""

    cases: tuple[Case, ...]
    repeats: bool
    tries: int


class Shrinker:
    """`fails` sends requests and says whether the fault shows.

    A fault may need luck: a set counts as whole only after `attempts` runs without it, and simpler
    requests are taken only if they fail twice in a row, so that the rest fails again later.
    """

    def __init__(self, fails: Fails, seconds: float, attempts: int = 2) -> None:
        self._fails = fails
        self._deadline = time.monotonic() + seconds
        self._attempts = attempts
        self.tries = 0

    def shrink(self, cases: Sequence[Case]) -> Shrunk:
        if not self._shows(cases, self._attempts + 1):
            return Shrunk(tuple(cases), False, self.tries)
        kept = self._fewer(list(cases))
        kept = self._fewer(self._simpler(kept))
        return Shrunk(tuple(kept), True, self.tries)

    def _shows(self, cases: Sequence[Case], attempts: int | None = None) -> bool:
        for _ in range(attempts or self._attempts):
            if time.monotonic() > self._deadline and self.tries:
                return False
            self.tries += 1
            if self._fails(cases):
                return True
        return False

    def _steady(self, cases: Sequence[Case]) -> bool:
        return self._shows(cases, 1) and self._shows(cases, 1)

    def _fewer(self, cases: list[Case]) -> list[Case]:
        """Leaves out ever smaller runs of requests while the fault stays."""
        size = max(1, len(cases) // 2)
        while True:
            start = 0
            while start < len(cases) and len(cases) > 1:
                rest = cases[:start] + cases[start + size :]
                if rest and self._shows(rest):
                    cases = rest
                else:
                    start += size
            if size == 1:
                return cases
            size = max(1, size // 2)

    def _simpler(self, cases: list[Case]) -> list[Case]:
        """Tries each simplification on all requests at once, then on one after the other."""
        changed = True
        while changed and time.monotonic() < self._deadline:
            changed = False
            for step in STEPS:
                together = [step(case) for case in cases]
                if together != cases and self._steady(together):
                    cases, changed = together, True
                    continue
                for index, case in enumerate(cases):
                    simpler = step(case)
                    tried = [*cases[:index], simpler, *cases[index + 1 :]]
                    if len(cases) > 1 and simpler != case and self._steady(tried):
                        cases, changed = tried, True
        return cases


def _whole(case: Case) -> Case:
    return replace(case, leave="", leave_after=0)


def _at_once(case: Case) -> Case:
    return case if case.leave else replace(case, stream=False)


def _without_logprobs(case: Case) -> Case:
    return replace(case, logprobs=0)


def _plain_greedy(case: Case) -> Case:
    return replace(case, sampling={"temperature": 0})


def _shorter_answer(case: Case) -> Case:
    new = max(1, case.new // 2)
    return replace(case, new=new, leave_after=min(case.leave_after, new // 2))


def _shorter_prompt(case: Case) -> Case:
    """The first token stays: a model may need its start token."""
    kept = (len(case.prompt) - 1) // 2
    return replace(case, prompt=(case.prompt[0], *case.prompt[len(case.prompt) - kept :]))


STEPS = (
    _whole,
    _at_once,
    _without_logprobs,
    _plain_greedy,
    _shorter_answer,
    _shorter_prompt,
)


def sizes(cases: Sequence[Case]) -> Iterator[str]:
    for case in cases:
        yield f"request {case.number}: prompt of {len(case.prompt)}, {case.new} new tokens"
