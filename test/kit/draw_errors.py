"""By how much the sampled tokens of the tiny pair miss the right ones."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_spec.client import Answer
from sglang_spec.models.tiny import TINY, Oracle

RANK = {token: i for i, token in enumerate(TINY.shuffle)}


def errors(prompt: Sequence[int], answers: Sequence[Answer], position: int) -> list[int]:
    """For each answer the bits by which its token differs from the right one after its own context.

    Their law is the same in every context. That of the tokens themselves is a mixture over what
    was drawn before, in which a fault at a later position all but drowns.
    """
    oracle = Oracle(TINY)
    return [
        RANK[a.tokens[position]] ^ oracle.value([*prompt, *a.tokens[:position]]) for a in answers
    ]
