"""A baseline without a second server: a prefill never speculates, so it can check a decode.

The prompt and the answer are given to the server as one prompt; at each position of the answer the
likeliest token of that prefill has to be the token that was generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..demo.equality import first_difference, grid_step
from .target import Target

CANDIDATES = 20


@dataclass(frozen=True)
class Unequal:
    """The first position of an answer whose token is not the baseline's.

    `gap` is how much likelier (log-probability) the baseline's token is; None where the answers
    differ in length only. `tie` says that rounding explains it.
    """

    prompt: int
    position: int
    got: int | None
    wanted: int | None
    gap: float | None
    tie: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def parted(
    target: Target, prompt: int, ids: Sequence[int], mine: Sequence[int], theirs: Sequence[int]
) -> Unequal | None:
    """Where two answers to `ids` part, by a prefill of `target`; None if they are equal.

    Of a tie the prefill may choose either token. If it is `mine`, the gap is that to `theirs`.
    """
    position = first_difference(theirs, mine)
    if position is None:
        return None
    got = mine[position] if position < len(mine) else None
    wanted = theirs[position] if position < len(theirs) else None
    if got is None or wanted is None:
        return Unequal(prompt, position, got, wanted, None, False)
    found = forced(target, prompt, ids, mine[: position + 1])
    if found is not None:
        return found
    other = forced(target, prompt, ids, theirs[: position + 1])
    gap, tie = (other.gap, other.tie) if other is not None else (None, False)
    return Unequal(prompt, position, got, wanted, gap, tie)


def forced(
    target: Target, prompt: int, ids: Sequence[int], tokens: Sequence[int]
) -> Unequal | None:
    """The first token of `tokens` (the answer to `ids`) that a prefill would not have chosen.

    A tie, where the prefill's two likeliest are within two steps of the logits' grid or within the
    margin of the settings, is returned only when nothing worse follows.
    """
    reply = target.generate(
        [*ids, *tokens],
        1,
        return_logprob=True,
        logprob_start_len=len(ids) - 1,
        top_logprobs_num=CANDIDATES,
    )
    rows = reply.meta["input_top_logprobs"][-len(tokens) :]
    tied: Unequal | None = None
    for position, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        likely = {candidate: logprob for logprob, candidate, _ in row}
        best = max(likely, key=lambda candidate: likely[candidate])
        gap = likely[best] - likely.get(token, float("-inf"))
        if gap <= 0:
            continue
        tie = gap <= max(2 * grid_step(likely.values()), target.settings.tie_margin)
        found = Unequal(prompt, position, token, best, gap, tie)
        if not tie:
            return found
        tied = tied or found
    return tied
