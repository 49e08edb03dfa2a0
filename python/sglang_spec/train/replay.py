"""Greedy acceptance replayed along a known answer. Plain Python; needs no torch.

When the target decodes greedily its answer is fixed, and so is which drafts it accepts: those
equal to the answer, up to the first that is not. So one pass of target and draft over prompt and
answer gives every cycle exactly: no engine has to run. `guesses[k][t]` is what the draft's step k
says when a cycle starts at position t (the target's state at t, token t + 1 known): t + 2 + k.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass(frozen=True)
class Acceptance:
    """Cycles, counted by how many drafts each accepted: `histogram[i]` accepted exactly i."""

    histogram: tuple[int, ...] = field(default=())

    @property
    def cycles(self) -> int:
        return sum(self.histogram)

    @property
    def accept_length(self) -> float:
        """Tokens a cycle, bonus included; 0.0 without cycles."""
        if not self.cycles:
            return 0.0
        drafts = sum(count * drafts for drafts, count in enumerate(self.histogram))
        return 1 + drafts / self.cycles

    @property
    def by_position(self) -> list[float]:
        """Share of cycles whose draft at position 1, 2, … was accepted."""
        total = max(1, self.cycles)
        return [sum(self.histogram[at:]) / total for at in range(1, len(self.histogram))]

    def to_json(self) -> dict[str, object]:
        return {
            "accept_length": round(self.accept_length, 4),
            "cycles": self.cycles,
            "by_position": [round(share, 4) for share in self.by_position],
            "histogram": list(self.histogram),
        }


def pool(parts: Iterable[Acceptance]) -> Acceptance:
    """All cycles of several answers together."""
    columns = zip_longest(*(part.histogram for part in parts), fillvalue=0)
    return Acceptance(tuple(sum(column) for column in columns))


def walk(
    prompt: int,
    tokens: Sequence[int],
    guesses: Sequence[Sequence[int]],
    new_tokens: int | None = None,
) -> Iterator[tuple[int, int]]:
    """(start, correct drafts) of each cycle of one request.

    Args:
        prompt: prompt tokens; `tokens` is prompt and greedy answer.
        guesses: [num_steps][positions], see above; one that is never asked for may be anything.
        new_tokens: the request's own limit. None replays only cycles whose every draft lies inside
            the answer, which is how the project's figures are measured: a last cycle that runs over
            the end of an answer says nothing of its later positions.

    With `new_tokens` the cycles are those of an engine: they go on until that many tokens are
    made, so the answer has to be at least num_steps + 1 tokens longer than that.
    """
    steps = len(guesses)
    at, end = prompt - 1, len(tokens) - 2 - steps
    if new_tokens is not None:
        # Prefill makes one token; a cycle is run while made < new_tokens.
        end = min(end, prompt - 1 + new_tokens - 1)
    while at < end:
        accepted = 0
        while accepted < steps and guesses[accepted][at] == tokens[at + 2 + accepted]:
            accepted += 1
        yield at, accepted
        at += accepted + 1


def replay(
    prompt: int,
    tokens: Sequence[int],
    guesses: Sequence[Sequence[int]],
    new_tokens: int | None = None,
) -> Acceptance:
    """The cycles of `walk`, counted."""
    histogram = [0] * (len(guesses) + 1)
    for _, accepted in walk(prompt, tokens, guesses, new_tokens):
        histogram[accepted] += 1
    return Acceptance(tuple(histogram))
