"""What the draft needs to catch up: the target's captured states of the tokens it has not seen.

A step without speculation leaves one entry for each of its rows: the captured hidden states at a
position (copied, since a CUDA graph owns them) and the token that follows it. Rows are those of
the request table, entries are in the order of the positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Ring:
    """Entries of every row, on the device of the model.

    Args:
        rows: rows of the request table, the padding row included.
        capacity: entries a row.
        width: elements of the captured states of one token.
    """

    def __init__(
        self, rows: int, capacity: int, width: int, dtype: torch.dtype, device: str
    ) -> None:
        self.capacity = capacity
        self._hidden = torch.zeros((rows * capacity, width), dtype=dtype, device=device)
        self._tokens = torch.zeros((rows * capacity,), dtype=torch.int64, device=device)

    @property
    def nbytes(self) -> int:
        return self._hidden.nbytes + self._tokens.nbytes

    def store(
        self, rows: Sequence[int], counts: Sequence[int], hidden: torch.Tensor, tokens: torch.Tensor
    ) -> None:
        """Append an entry to each row.

        Args:
            rows, counts: the batch's rows, and how many entries each has.
            hidden: (rows, width), captured at the positions of the step.
            tokens: (rows,), what the step sampled.
        """
        where = to_device(
            [row * self.capacity + count for row, count in zip(rows, counts, strict=True)],
            self._hidden.device,
        )
        self._hidden.index_copy_(0, where, hidden.to(self._hidden.dtype))
        self._tokens.index_copy_(0, where, tokens.to(torch.int64))

    def take(self, rows: Sequence[int], entries: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first `entries` entries of each row: (rows * entries, width) and (rows * entries,).

        Rows with fewer entries are filled up with old ones.
        """
        where = to_device(
            [row * self.capacity + entry for row in rows for entry in range(entries)],
            self._hidden.device,
        )
        return self._hidden[where], self._tokens[where]


def to_device(numbers: Sequence[int], device: torch.device | str) -> torch.Tensor:
    """Host integers as int64 on the device, without making the host wait."""
    pinned = torch.device(device).type == "cuda"
    host = torch.tensor(numbers, dtype=torch.int64, pin_memory=pinned)
    return host.to(device, non_blocking=pinned)
