"""The loads of a run: context lengths by concurrencies (closed loop) or by request rates (open)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


class CellError(ValueError):
    """A load that cannot be measured; the text says why."""


@dataclass(frozen=True)
class Cell:
    """Requests of `context` prompt tokens and `new_tokens` output tokens each.

    Closed loop: `concurrency` of them at a time, a new one when one ends. Open loop: `rate` a
    second, Poisson arrivals, whether the server keeps up or not. Exactly one of the two is given.
    """

    context: int
    concurrency: int | None
    rate: float | None
    requests: int
    new_tokens: int

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.rate is None):
            raise CellError("a cell has a concurrency or a rate, and not both")
        if self.context < 2 or self.new_tokens < 8 or self.requests < 1:
            raise CellError(
                f"{self.context} prompt tokens, {self.new_tokens} new tokens, {self.requests} "
                "requests: expected at least 2, 8 and 1"
            )
        load = self.concurrency if self.concurrency is not None else self.rate
        if load is not None and not 0 < load < math.inf:  # NaN is neither
            raise CellError(f"a load of {load}: a concurrency is at least 1, a rate above 0")
        if self.concurrency is not None and self.requests < self.concurrency:
            raise CellError(
                f"{self.requests} requests cannot run {self.concurrency} at a time; give "
                "--requests a larger number"
            )

    @property
    def key(self) -> str:
        """`512x8`: 512 prompt tokens, 8 at a time; `512@2.5`: 2.5 requests a second."""
        if self.concurrency is not None:
            return f"{self.context}x{self.concurrency}"
        return f"{self.context}@{self.rate:g}"

    @property
    def kv_tokens(self) -> int:
        """KV cache entries that all requests need that run at once (closed loop; 0 else)."""
        return (self.concurrency or 0) * (self.context + self.new_tokens + 16)


def grid(
    contexts: Sequence[int],
    concurrencies: Sequence[int],
    rates: Sequence[float],
    requests: int | None,
    new_tokens: int,
) -> tuple[Cell, ...]:
    """All cells; without `requests`, three a slot and at least eight.

    Raises:
        CellError: one of them cannot be measured, or there is none.
    """
    closed = [
        Cell(context, count, None, requests or max(8, 3 * count), new_tokens)
        for context, count in itertools.product(contexts, concurrencies)
    ]
    opened = [
        Cell(context, None, rate, requests or 16, new_tokens)
        for context, rate in itertools.product(contexts, rates)
    ]
    if not closed and not opened:
        raise CellError("nothing to measure: give --context with --concurrency or --rate")
    return tuple(dict.fromkeys([*closed, *opened]))
