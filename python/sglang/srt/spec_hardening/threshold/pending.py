"""How many tokens of each request the draft has not seen: counted by row of the request table.

While speculation is off the draft's KV cache falls behind the target's. A request's draft-valid
length is its length minus its count here. Counted on the host, at launch, by every rank alike; no
torch. `checkpoint_end` is called where a request ends: the radix cache must not keep tokens whose
draft KV was never written, since nothing would ever write it.

Called by: `worker` (the counts), `mem_cache/common.py` (`checkpoint_end`, patch `batch-threshold`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

# Tokens that the draft may be behind a request. The price of a catching-up is shared by as many
# steps; what the radix cache loses at a request's end is less than this.
CAPACITY = 16


class Pending:
    """Tokens behind, for each row.

    Args:
        rows: rows of the request table, the padding row included.
        capacity: most tokens that a row may be behind; the draft has to catch up before.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.capacity = capacity
        self._counts = [0] * rows

    def of(self, rows: Iterable[int]) -> list[int]:
        return [self._counts[row] for row in rows]

    def clear(self, rows: Iterable[int]) -> None:
        """The draft has seen all of these rows, or they hold new requests."""
        for row in rows:
            self._counts[row] = 0

    def add_one(self, rows: Sequence[int]) -> None:
        """A step without speculation appends a token to each of these rows."""
        for row in rows:
            if self._counts[row] >= self.capacity:
                raise RuntimeError(f"row {row} is {self.capacity} tokens behind already")
            self._counts[row] += 1


_of_this_rank: Pending | None = None


def publish(pending: Pending | None) -> None:
    """Make the counts of this process's worker known to `checkpoint_end`."""
    global _of_this_rank
    _of_this_rank = pending


def checkpoint_end(req: Any, owned: int) -> int:
    """Up to where the radix cache may keep the KV of a request that ends.

    Under overlap the next batch was launched with the request in it; its token is counted as
    behind already, and the end comes out one token short at the most. What the tree holds of the
    request (`cache_protected_len`, and the token that ends its last bigram) was inserted when the
    draft had seen it, and is never given up.

    Args:
        req: the request, its row not released yet.
        owned: tokens of KV that it owns; the answer without a threshold.
    """
    if _of_this_rank is None:
        return owned
    (behind,) = _of_this_rank.of([req.kv.req_pool_idx])
    if not behind:
        return owned
    seen = int(req.kv.kv_committed_len) - behind
    return min(owned, max(seen, int(req.kv.cache_protected_len) + 1))
