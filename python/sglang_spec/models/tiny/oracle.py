"""What the tiny pair must do, in plain Python: the reference that servers are held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglang_spec.models.tiny.plan import (
    BITS,
    BOS,
    FAR_SHIFT,
    NEAR_SHIFT,
    SPECIALS,
    VOCABULARY,
    Plan,
    code,
)

LOGIT_UNIT = 4.0
SPECIAL_LOGIT = -64.0


@dataclass(frozen=True)
class Oracle:
    """Predicts tokens, logits and accept lengths of a tiny pair.

    A context is the list of all token ids so far. It must begin with BOS and hold no other BOS:
    elsewhere the models' answers are deterministic, but not those of the plan (ValueError).
    """

    plan: Plan

    def value(self, context: Sequence[int]) -> int:
        """The eight bits y that decide the token after `context`."""
        if not context or context[0] != BOS or BOS in context[1:]:
            raise ValueError("a context begins with BOS and holds no other BOS")
        total = 0
        for token in context[-self.plan.window :]:
            total ^= code(token)
        for bit in range(BITS):
            for distance, shift in (
                (self.plan.near[bit], NEAR_SHIFT),
                (self.plan.far[bit], FAR_SHIFT),
            ):
                if distance < len(context):
                    read = code(context[-1 - distance]) >> (bit + shift) % BITS & 1
                    total ^= read << bit
        return total

    def next_token(self, context: Sequence[int]) -> int:
        """The greedy token after `context`."""
        return self.plan.shuffle[self.value(context)]

    def greedy(self, context: Sequence[int], count: int) -> list[int]:
        """The next `count` greedy tokens."""
        tokens = list(context)
        for _ in range(count):
            tokens.append(self.next_token(tokens))
        return tokens[len(context) :]

    def logits(self, context: Sequence[int]) -> list[float]:
        """The target's logits after `context`, [vocabulary], exact in bf16 and float32.

        The right token has 32, one whose value differs in n bits 32 - 8 n, special tokens -64.
        """
        right = self.value(context)
        row = [SPECIAL_LOGIT] * VOCABULARY
        for value, token in enumerate(self.plan.shuffle):
            row[token] = LOGIT_UNIT * (BITS - 2 * (value ^ right).bit_count())
        return row

    def accept_lengths(self, context: Sequence[int], count: int, steps: int) -> list[int]:
        """Accept length (bonus token included) of each verify of a healthy greedy server, topk 1.

        Args:
            context: the prompt. Its prefill yields the first token, without a verify.
            count: tokens generated in all; the last verify may run past it.
            steps: drafted tokens per verify.
        """
        known = set(self.plan.draft_tokens)
        tokens = self.greedy(context, count + steps + 1)
        lengths, done = [], 1
        while done < count:
            drafted = tokens[done : done + steps]
            correct = next((i for i, t in enumerate(drafted) if t not in known), steps)
            lengths.append(correct + 1)
            done += correct + 1
        return lengths


def faults(tokens: Sequence[int]) -> list[int]:
    """Indices of tokens that only a fault can produce: any special token."""
    return [index for index, token in enumerate(tokens) if token < SPECIALS]
