"""Ragged segments: coordinates of all positions of many ranges, without a loop over ranges."""

from typing import NamedTuple

import torch


class Segments(NamedTuple):
    """Every position of every range, in order."""

    row: torch.Tensor  # int64 [total]: which range a position belongs to
    offset: torch.Tensor  # int64 [total]: its distance from the start of that range
    total: int


def enumerate_segments(lengths: torch.Tensor) -> Segments:
    """Coordinates of ranges with the given lengths.

    Args:
        lengths: integer [n]; a negative length counts as zero.
    """
    lengths = lengths.to(torch.int64).clamp_min(0)
    ends = lengths.cumsum(0)
    total = int(ends[-1]) if ends.numel() else 0
    row = torch.repeat_interleave(lengths, output_size=total)
    offset = torch.arange(total) - (ends - lengths)[row]
    return Segments(row, offset, total)
