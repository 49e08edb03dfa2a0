"""Where two greedy answers part, and whether a tie of the logits explains it.

In float32 the answers must be equal. bfloat16 has 8 bits of mantissa, so the two largest of
49,152 logits are now and then the same number; verify (several rows at once) and decode (one row)
then may pick different ones. A difference counts as a tie only if it is shown to be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..client import Client


@dataclass(frozen=True)
class Difference:
    """The first position where the answers to one prompt part.

    `margin` is the gap between the two tokens' log-probabilities in the plain decode; 0.0 is an
    exact tie of the bfloat16 logits.
    """

    prompt: int
    position: int
    base_token: int
    spec_token: int
    margin: float

    @property
    def tie(self) -> bool:
        return self.margin == 0.0


def first_difference(base: Sequence[int], spec: Sequence[int]) -> int | None:
    """Index of the first unequal token; the shorter length if one is a prefix of the other."""
    for position, (left, right) in enumerate(zip(base, spec, strict=False)):
        if left != right:
            return position
    return None if len(base) == len(spec) else min(len(base), len(spec))


def explain(
    base: Client,
    prompt: int,
    prompt_ids: Sequence[int],
    answer: Sequence[int],
    position: int,
    spec_token: int,
) -> Difference:
    """Decode again without speculation, with log-probabilities, and measure the gap.

    The decode is repeated from the start on an empty prefix cache, not teacher-forced: a prefill
    of other width is a different matrix product and rounds differently.
    """
    base.flush_cache()
    again = base.generate(
        prompt_ids,
        position + 1,
        return_logprob=True,
        top_logprobs_num=8,
    )
    if again.tokens != tuple(answer[: position + 1]):
        raise RuntimeError(f"prompt {prompt}: the plain server does not repeat its own answer")
    at_position = {token: logprob for logprob, token, _ in again.meta["output_top_logprobs"][-1]}
    base_token = answer[position]
    gap = at_position[base_token] - at_position.get(spec_token, float("-inf"))
    return Difference(prompt, position, base_token, spec_token, abs(gap))
