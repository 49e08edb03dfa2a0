"""How many drafts of a cycle the target accepts: a running estimate per position.

Fed with accept results, which every rank has in the same order, and made of additions,
multiplications and divisions only, so that the estimate is the same number on every rank.
Imports without torch.
"""

from __future__ import annotations

from collections.abc import Sequence

# Before anything was seen each draft is taken to be accepted in six of ten cases that reach it, as
# published chains of three are (accept length 2.2), with the weight of a few cycles.
PRIOR_RATE = 0.6
PRIOR_WEIGHT = 8.0
# Row-cycles that are remembered: enough for an estimate within 2 %, few enough to follow traffic.
WINDOW = 512


class Acceptance:
    """Counts, fading, of drafts reached and accepted at each of `num_steps` positions."""

    def __init__(
        self,
        num_steps: int,
        prior_rate: float = PRIOR_RATE,
        prior_weight: float = PRIOR_WEIGHT,
        window: int = WINDOW,
    ) -> None:
        self._prior = (prior_rate, prior_weight)
        self._window = window
        self._reached = [0.0] * num_steps
        self._accepted = [0.0] * num_steps

    def fresh(self) -> Acceptance:
        """One with the same parameters that has seen nothing."""
        return Acceptance(len(self._reached), *self._prior, self._window)

    def observe(self, correct_drafts: Sequence[int]) -> None:
        """One verified batch: how many drafts of each row were accepted (no bonus token)."""
        if not correct_drafts:
            return
        self.fade(self._window / (self._window + len(correct_drafts)))
        for position in range(len(self._reached)):
            self._reached[position] += sum(count >= position for count in correct_drafts)
            self._accepted[position] += sum(count > position for count in correct_drafts)

    def fade(self, keep: float) -> None:
        """Let what was seen so far count `keep` (0 to 1) of what it did."""
        self._reached = [count * keep for count in self._reached]
        self._accepted = [count * keep for count in self._accepted]

    @property
    def rates(self) -> tuple[float, ...]:
        """At each position, the share of drafts that are accepted among those that are reached."""
        rate, weight = self._prior
        return tuple(
            (accepted + rate * weight) / (reached + weight)
            for accepted, reached in zip(self._accepted, self._reached, strict=True)
        )

    @property
    def accept_length(self) -> float:
        """Tokens that a cycle is expected to give, the bonus token included."""
        return expected_length(self.rates)

    @property
    def prior_accept_length(self) -> float:
        """The same before anything was seen."""
        return expected_length([self._prior[0]] * len(self._reached))

    @property
    def seen(self) -> float:
        """Row-cycles that the estimate rests on, faded."""
        return self._reached[0]


def expected_length(rates: Sequence[float]) -> float:
    """1 for the bonus token, plus the chance of each draft that all up to it are accepted."""
    length = chance = 1.0
    for rate in rates:
        chance *= rate
        length += chance
    return length
