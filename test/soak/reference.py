"""What a greedy request must be answered: by the tiny pair's oracle, by a server without
speculation, or by both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sglang_spec.models.tiny import Oracle

from .case import Case
from .drive import Outcome, drive
from .judge import Difference


class Reference:
    """Expected tokens of greedy requests; differences between the two sources are findings.

    Args:
        oracle: of the pair that is served, where it is a tiny one.
        baseline: URL of a server of the same target without speculation.
        at_once: requests in flight there.
    """

    def __init__(self, oracle: Oracle | None, baseline: str | None, at_once: int = 16) -> None:
        if oracle is None and baseline is None:
            raise ValueError("nothing to compare with: neither an oracle nor a baseline server")
        self.oracle = oracle
        self.baseline = baseline
        self.at_once = at_once
        self.asked = 0

    def answers(self, prompt: tuple[int, ...], new: int) -> list[int]:
        assert self.oracle is not None
        return self.oracle.greedy(prompt, new)

    def expected(
        self, cases: Sequence[Case], timeout: float, ask: bool = True
    ) -> tuple[dict[int, list[int]], list[Difference]]:
        """Tokens by number of request, and where oracle and baseline disagree.

        The baseline gets each request whole: no stream, nobody leaves. With `ask` False it is
        left out if there is an oracle.
        """
        greedy = [case for case in cases if case.greedy]
        known: dict[int, list[int]] = {}
        if self.oracle is not None:
            known = {case.number: case.cut(self.answers(case.prompt, case.new)) for case in greedy}
        if self.baseline is None or (known and not ask) or not greedy:
            return known, []
        whole = [replace(case, stream=False, leave="", logprobs=0) for case in greedy]
        self.asked += len(whole)
        found, differences = {}, []
        for outcome in drive(self.baseline, whole, self.at_once, timeout):
            found[outcome.number] = list(outcome.tokens)
            differences += self._disagreement(outcome, known.get(outcome.number))
        return known or found, differences

    def _disagreement(self, outcome: Outcome, known: list[int] | None) -> list[Difference]:
        if outcome.error:
            return [Difference("baseline", outcome.number, outcome.error)]
        if known is not None and list(outcome.tokens) != known:
            return [Difference("baseline", outcome.number, "differs from the oracle")]
        return []
