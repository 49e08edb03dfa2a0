"""Acceptance from finished answers. Pure arithmetic on counters; imports nothing heavy.

Words as in SGLang: the accept length of a cycle is its correct drafts plus the bonus token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest


def pool(histograms: Iterable[Sequence[int]]) -> list[int]:
    """Sum histograms of correct drafts per cycle: entry i counts cycles with exactly i."""
    return [sum(column) for column in zip_longest(*histograms, fillvalue=0)]


def accept_length(histogram: Sequence[int]) -> float:
    """Mean tokens per cycle, bonus included: 1 + correct drafts / cycles. 0.0 without cycles.

    The token that prefill yields belongs to no cycle and is not counted, unlike in upstream's
    `spec_accept_length` (completion tokens / verify calls).
    """
    cycles = sum(histogram)
    if cycles == 0:
        return 0.0
    return 1 + sum(drafts * count for drafts, count in enumerate(histogram)) / cycles


def position_acceptance(histogram: Sequence[int]) -> list[float]:
    """Share of cycles whose draft at position 1, 2, … was accepted (all before it were, too)."""
    cycles = sum(histogram)
    if cycles == 0:
        return []
    return [sum(histogram[position:]) / cycles for position in range(1, len(histogram))]
