"""Where the requests of a batch are in the ledger's tensors, which have a row for each line.

Lines that follow each other, which one line does, are looked at in place; others cost an operation
more for each look.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def on_device(values: Sequence[object], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A copy on the device that the host does not wait for."""
    host = torch.tensor(values, dtype=dtype)
    if device.type == "cuda":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)


class Lines:
    """R lines; what is called `values` is by line, what is called `columns` int64 [R, C].

    Attributes:
        index: int64 [R], on the device.
    """

    def __init__(self, indices: Sequence[int], device: torch.device) -> None:
        self.index = on_device(indices, torch.int64, device)
        self._column = self.index[:, None]
        first = indices[0] if indices else 0
        run = range(first, first + len(indices))
        self._run = slice(run.start, run.stop) if list(indices) == list(run) else None

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The rows of these lines, to be read."""
        return values.index_select(0, self.index) if self._run is None else values[self._run]

    def gather(self, values: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        if self._run is None:
            return values[self._column, columns]
        return values[self._run].gather(1, columns)

    def put(self, values: torch.Tensor, columns: torch.Tensor, new: torch.Tensor) -> None:
        if self._run is None:
            values.index_put_((self._column, columns), new)
        else:
            values[self._run].scatter_(1, columns, new)

    def count(self, values: torch.Tensor, columns: torch.Tensor, more: torch.Tensor) -> None:
        """Add to elements, of which one may be named twice."""
        if self._run is None:
            values.put_(columns + self._column * values.shape[1], more, accumulate=True)
        else:
            values[self._run].scatter_add_(1, columns, more)

    def add(self, values: torch.Tensor, more: torch.Tensor) -> None:
        """Add `more`, [R], to all of each line."""
        if values.dim() > 1:
            more = more[:, None].expand(-1, values.shape[1])
        if self._run is None:
            values.index_add_(0, self.index, more.to(values.dtype))
        else:
            values[self._run].add_(more)
