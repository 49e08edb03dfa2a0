"""Where two greedy answers part, and whether a tie of the logits explains it.

In float32 the answers must be equal. bfloat16 keeps 8 bits of a number, so logits between 16 and 32
lie on a grid of 0.125, and the two largest of 49,152 are now and then the same point of it or
neighbours; verify (several rows at once) and decode (one row) round differently on the way there
and may then pick different tokens. A difference counts as a tie only where it is measured: the two
tokens have the same logit in one of the servers, or are one grid step apart in both (a logit of 16
may stand among others below, whose grid is twice as fine: up to two of their steps).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..client import Client

# Among this many largest logits two neighbours of the grid practically always occur.
CANDIDATES = 20
# Log-probabilities are float32 sums of grid points and one constant.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Difference:
    """The first position where the answers to one prompt part.

    `base_gap` is how far the plain decode has its own token above the other one, `spec_gap` the
    same in the verify of the speculating server, both in units of log-probability, which are those
    of the logits. `step` is the smallest distance of neighbouring bfloat16 logits among the
    likeliest; where these straddle a power of two, the grid at the top is twice as wide.
    """

    prompt: int
    position: int
    base_token: int
    spec_token: int
    base_gap: float
    spec_gap: float
    step: float

    @property
    def tie(self) -> bool:
        """The same bfloat16 number in one of the servers, or one step of the top apart in both."""
        return self.exact_tie or max(self.base_gap, self.spec_gap) <= 2 * self.step + ROUNDING

    @property
    def exact_tie(self) -> bool:
        """The very same bfloat16 number in one of the two servers."""
        return min(self.base_gap, self.spec_gap) <= ROUNDING


def first_difference(base: Sequence[int], spec: Sequence[int]) -> int | None:
    """Index of the first unequal token; the shorter length if one is a prefix of the other."""
    for position, (left, right) in enumerate(zip(base, spec, strict=False)):
        if left != right:
            return position
    return None if len(base) == len(spec) else min(len(base), len(spec))


def explain(
    base: Client,
    spec: Client,
    prompt: int,
    prompt_ids: Sequence[int],
    position: int,
    tokens: tuple[int, int],
) -> Difference:
    """Decode again up to `position` on both servers, with log-probabilities, and measure.

    Args:
        tokens: the plain server's token at `position`, and the speculating server's.

    Raises:
        RuntimeError: a server does not repeat its own answer, so nothing can be said of it.
    """
    base_token, spec_token = tokens
    plain = _logprobs(base, prompt_ids, position, base_token)
    fast = _logprobs(spec, prompt_ids, position, spec_token)
    absent = float("-inf")
    return Difference(
        prompt=prompt,
        position=position,
        base_token=base_token,
        spec_token=spec_token,
        base_gap=plain[base_token] - plain.get(spec_token, absent),
        spec_gap=fast[spec_token] - fast.get(base_token, absent),
        step=max(grid_step(plain.values()), grid_step(fast.values())),
    )


def grid_step(logprobs: Iterable[float]) -> float:
    """The smallest gap between unequal values: one step of their grid, or a little more."""
    ordered = sorted(logprobs)
    gaps = (high - low for low, high in pairwise(ordered))
    return min((gap for gap in gaps if gap > ROUNDING), default=0.0)


def _logprobs(
    client: Client, prompt_ids: Sequence[int], position: int, token: int
) -> dict[int, float]:
    """Log-probabilities of the likeliest tokens at `position` of the greedy answer.

    The decode is repeated from the start on an empty prefix cache, not teacher-forced: a prefill
    of other width is a different matrix product and rounds differently.
    """
    client.flush_cache()
    again = client.generate(
        prompt_ids, position + 1, return_logprob=True, top_logprobs_num=CANDIDATES
    )
    if len(again.tokens) <= position or again.tokens[position] != token:
        raise RuntimeError(f"a server does not repeat its own answer to {list(prompt_ids)[:8]}…")
    rows = again.meta["output_top_logprobs"][position]
    return {token: logprob for logprob, token, _ in rows}
