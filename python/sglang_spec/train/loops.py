"""Answers that repeat themselves. A small model falls into them, and any draft copies them.

They flatter an accept length and teach little, so figures are given with and without them, and
training keeps only the beginning of a loop. Plain Python; needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

GRAM = 8


def repeated_share(answer: Sequence[int], gram: int = GRAM) -> float:
    """Share of the answer's runs of `gram` tokens that have occurred in it before."""
    runs = [tuple(answer[at : at + gram]) for at in range(len(answer) - gram + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def loops(answer: Sequence[int], share: float = 0.05) -> bool:
    """Whether an answer repeats itself: at least `share` of its runs of eight are old ones."""
    return repeated_share(answer) >= share


def loop_start(answer: Sequence[int], rounds: int = 2, longest: int = 64) -> int | None:
    """Where the answer's end begins to repeat: the end of the first round; None if it does not.

    A loop is a tail that is one piece of at most `longest` tokens over and over, at least `rounds`
    times beyond the first and at least `GRAM` tokens in all (a list's "- " is none).
    """
    size = len(answer)
    for period in range(1, min(longest, size // (rounds + 1)) + 1):
        begin = size
        while begin > period and answer[begin - 1] == answer[begin - 1 - period]:
            begin -= 1
        if size - begin >= max(rounds * period, GRAM):
            return begin
    return None


def cut(answer: Sequence[int], kept: int) -> list[int]:
    """The answer with at most `kept` tokens of its loop after the first round."""
    begin = loop_start(answer)
    return list(answer) if begin is None else list(answer[: begin + kept])
