"""Whether near-ties of the logits explain where the greedy answers of two bfloat16 servers part.

Alone, a server repeats its own answer, so the logits of the very step at which two answers part can
be asked for again: `sglang_spec.demo.equality`. In a batch the rows beside a request change how its
sums round, and the step cannot be repeated; there the two tokens are compared by a prefill of the
common start on the server without speculation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_spec.client import Client
from sglang_spec.demo.equality import Difference, explain, first_difference

# Log-probability. Neighbouring bfloat16 logits of this size (16 to 32) are 0.125 apart; the
# neighbours of a request in its batch were seen to move a gap by two or three such steps.
CLOSE = 0.5
CANDIDATES = 20


@dataclass(frozen=True)
class Parting:
    """Where the answers to a prompt of a batch part; `gap` is measured by a prefill."""

    prompt: int
    position: int
    tokens: tuple[int, int]
    gap: float

    @property
    def tie(self) -> bool:
        return self.gap <= CLOSE


def alone(
    base: Client, spec: Client, prompts: Sequence[Sequence[int]], new: int
) -> list[Difference]:
    """Each prompt by itself on both servers; one entry for every answer that differs."""
    found = []
    for index, prompt in enumerate(prompts):
        answers = []
        for client in (base, spec):
            client.flush_cache()
            answers.append(client.generate(prompt, new).tokens)
        position = first_difference(*answers)
        if position is not None:
            assert all(position < len(answer) for answer in answers), "one answer ends early"
            pair = (answers[0][position], answers[1][position])
            found.append(explain(base, spec, index, prompt, position, pair))
    return found


def together(
    base: Client, spec: Client, prompts: Sequence[Sequence[int]], new: int
) -> list[Parting]:
    """All prompts in one batch on both servers; one entry for every answer that differs."""
    left, right = (client.generate_batch(prompts, new) for client in (base, spec))
    found = []
    for index, (prompt, one, other) in enumerate(zip(prompts, left, right, strict=True)):
        position = first_difference(one.tokens, other.tokens)
        if position is not None:
            assert position < min(len(one.tokens), len(other.tokens)), "one answer ends early"
            tokens = (one.tokens[position], other.tokens[position])
            context = [*prompt, *one.tokens[:position]]
            found.append(Parting(index, position, tokens, _gap(base, context, tokens)))
    return found


def _gap(client: Client, context: Sequence[int], tokens: tuple[int, int]) -> float:
    """How far apart the two tokens are after `context`; infinite unless both are likely."""
    answer = client.generate(context, 1, return_logprob=True, top_logprobs_num=CANDIDATES)
    rows = {token: logprob for logprob, token, _ in answer.meta["output_top_logprobs"][0]}
    return abs(rows.get(tokens[0], float("inf")) - rows.get(tokens[1], float("-inf")))
