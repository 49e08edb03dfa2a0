"""Which requests of a batch are computed together, and where the table holds their keys.

Requests in one group are padded to its longest, so a group takes in only what wastes little; the
padding repeats a key of the request itself, never a foreign row that might hold a NaN. A plan
depends on lengths and table rows alone, not on what the table holds, so one plan serves all layers
of a forward pass and is remembered by value.
"""

from functools import lru_cache
from typing import NamedTuple

import torch

from sgl_kernel.attention.kernel import row_count
from sgl_kernel.attention.masks import causal_bias, padding_bias

# Up to this many folded rows all queries of a request share one pass over its keys, and requests
# share a group.
MAX_FOLDED_ROWS = 96
# Padded keys that cost about as much as one more pass through the kernel.
_FREE_PADDING = 512
# Bytes of gathered keys per group. Beyond the processor's caches, requests one by one are faster.
_MAX_GROUP_BYTES = 2 << 20


class Requests(NamedTuple):
    """A batch, one entry per request."""

    rows: tuple[int, ...]  # row in the table
    ends: tuple[int, ...]  # keys, new tokens included
    queries: tuple[int, ...]  # new tokens
    starts: tuple[int, ...]  # first row in q and o


class Layout(NamedTuple):
    """What all requests of a call have in common."""

    table_width: int  # row stride of the table
    heads_per_kv: int
    key_bytes: int  # of one key, all heads
    window: int  # a query sees this many keys at the most; 0 for all
    is_causal: bool  # whether the groups' masks hide later new tokens
    dtype: torch.dtype  # of the masks


class Group(NamedTuple):
    """Requests with one number of new tokens and similar numbers of keys."""

    batch: int
    queries: int
    keys: int  # columns, the longest request's
    rows: int  # folded query rows, spare row included
    cells: torch.Tensor  # int64 [batch * keys] into the flattened table, right-aligned
    requests: torch.Tensor  # int64 [batch], positions in the batch
    tokens: slice | torch.Tensor  # batch * queries rows of q and o
    padding: torch.Tensor | None  # [batch, 1, 1, keys], None where all are equally long
    bias: torch.Tensor | None  # padding and causality together; None where nothing is hidden


@lru_cache(maxsize=4)
def plan(requests: Requests, layout: Layout) -> tuple[Group, ...]:
    """Groups that cover every request with at least one new token once."""
    lengths = requests.ends
    if layout.window > 0:
        lengths = tuple(
            min(end, layout.window + new - 1)
            for end, new in zip(requests.ends, requests.queries, strict=True)
        )
    order = sorted(
        (index for index, new in enumerate(requests.queries) if new > 0),
        key=lambda index: (-requests.queries[index], -lengths[index], index),
    )
    groups = _split(order, requests.queries, lengths, layout)
    return tuple(_group(sorted(members), requests, lengths, layout) for members in groups)


def _split(
    order: list[int], queries: tuple[int, ...], lengths: tuple[int, ...], layout: Layout
) -> list[list[int]]:
    """Cut the ordered requests where the padding of a group would outgrow its use."""
    max_queries = MAX_FOLDED_ROWS // layout.heads_per_kv
    max_keys = _MAX_GROUP_BYTES // layout.key_bytes
    groups: list[list[int]] = []
    kept = 0
    for index in order:
        longest = groups[-1][0] if groups else index
        padded = (len(groups[-1]) + 1) * lengths[longest] if groups else 0
        joins = (
            len(groups) > 0
            and queries[longest] == queries[index] <= max_queries
            and padded - kept - lengths[index] <= _FREE_PADDING + (kept + lengths[index]) // 8
            and padded <= max_keys
        )
        if joins:
            groups[-1].append(index)
            kept += lengths[index]
        else:
            groups.append([index])
            kept = lengths[index]
    return groups


def _group(
    members: list[int], requests: Requests, all_lengths: tuple[int, ...], layout: Layout
) -> Group:
    new = requests.queries[members[0]]
    lengths = torch.tensor([all_lengths[index] for index in members])
    keys = int(lengths.max())
    end = torch.tensor([requests.rows[i] * layout.table_width + requests.ends[i] for i in members])
    column = torch.arange(keys) - (keys - lengths).unsqueeze(1)
    cells = (end - lengths).unsqueeze(1) + column.clamp_min(0)
    rows = row_count(new, layout.heads_per_kv, cells.numel(), layout.dtype)
    padding = padding_bias(lengths, keys, layout.dtype) if int(lengths.min()) < keys else None
    bias = padding
    if layout.is_causal and new > 1 and rows <= MAX_FOLDED_ROWS + 1:
        bias = causal_bias(new, layout.heads_per_kv, rows, keys, layout.window, layout.dtype)
        bias = bias if padding is None else bias + padding
    return Group(
        batch=len(members),
        queries=new,
        keys=keys,
        rows=rows,
        cells=cells.view(-1),
        requests=torch.tensor(members),
        tokens=_tokens([requests.starts[index] for index in members], new),
        padding=padding,
        bias=bias,
    )


def _tokens(starts: list[int], new: int) -> slice | torch.Tensor:
    """Rows of q: a slice where the requests lie side by side, else their indices."""
    if starts == [starts[0] + i * new for i in range(len(starts))]:
        return slice(starts[0], starts[0] + len(starts) * new)
    return (torch.tensor(starts).unsqueeze(1) + torch.arange(new)).view(-1)
