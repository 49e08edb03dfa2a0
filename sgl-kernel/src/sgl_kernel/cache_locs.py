"""Cache locations: copies between the request-to-token table and flat lists of KV slots.

Shapes in common. `req_to_token` is int32 [requests, pool_len], row r holding the KV slot of each
position of request r; `req_pool_indices` is integer [bs], the row of each batch entry; `seq_lens`,
`start_offset` and `end_offset` are integer [bs]. Slots come out as int64 or int32, whichever dtype
the output tensor has. `pool_len` is accepted for the call's sake: the table's own second dimension
is what counts.
"""

import torch

from sgl_kernel.ragged import Segments, enumerate_segments


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write the slots `out_cache_loc` into columns [start, end) of each request's row, in place.

    Caller: `srt/mem_cache/allocation.py: assign_req_to_token_pool_func`. `out_cache_loc` is integer
    [sum(end - start)].
    """
    rows, columns, segments = _table_coordinates(req_pool_indices, start_offset, end_offset)
    req_to_token[rows, columns] = out_cache_loc[: segments.total].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read columns [start, end) of each request's row into `out_cache_loc`, in place.

    Caller: `kernels/ops/speculative/cache_locs.py: assign_extend_cache_locs_func` and
    `fill_front_out_cache_loc_func`; the latter hands an output longer than the sum of the ranges,
    whose tail stays as it is.
    """
    rows, columns, segments = _table_coordinates(req_pool_indices, start_offset, end_offset)
    out_cache_loc[: segments.total] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    speculative_num_steps: int,
) -> None:
    """Read the slots that follow each request's sequence into `out_cache_loc`, in place.

    `out_cache_loc` has bs * topk * steps entries.

    Caller: `kernels/ops/speculative/cache_locs.py: assign_draft_cache_locs_contiguous_func`.
    """
    width = topk * speculative_num_steps
    columns = seq_lens.to(torch.int64).unsqueeze(1) + torch.arange(width)
    slots = req_to_token[req_pool_indices.to(torch.int64).unsqueeze(1), columns]
    out_cache_loc.view(-1, width).copy_(slots)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor,
    out_cache_loc: torch.Tensor,
    accept_out_cache_loc: torch.Tensor,
) -> None:
    """Pack the slots of accepted tokens to the front of `accept_out_cache_loc`, in place.

    The rest of it stays as it is.

    Caller: `kernels/ops/speculative/eagle.py: fill_accept_out_cache_loc_func`.

    Args:
        accept_index: integer, any shape: indices into `out_cache_loc`, -1 where nothing was
            accepted.
        out_cache_loc: integer [bs * draft_tokens].
        accept_out_cache_loc: integer, at least as many entries as `accept_index`.
    """
    flat = accept_index.reshape(-1)
    accepted = flat[flat > -1].to(torch.int64)
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted].to(
        accept_out_cache_loc.dtype
    )


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """One table row per draft branch: the request's prefix, then that branch's own slots.

    Caller: `srt/layers/attention/intel_amx_backend.py:
    IntelAMXMultiStepDraftBackend.init_forward_metadata`. Branch k of a request of length s drafts
    into columns s + k * num_steps and on, the layout that `assign_draft_cache_locs_contiguous_cpu`
    reads.

    Returns:
        [bs * topk, width] in the dtype of `req_to_token`, width = min(pool_len, max(seq_lens) +
        num_steps). Row b * topk + k is defined up to column seq_lens[b] + num_steps. Its readers
        take the row stride from the tensor, so the unused columns up to `pool_len` are not made.
    """
    if seq_lens.numel() == 0:
        return req_to_token.new_zeros((0, min(pool_len, num_steps)))
    rows = req_pool_indices.to(torch.int64)
    width = min(pool_len, int(seq_lens.max()) + num_steps)
    if topk == 1:
        return req_to_token[:, :width].index_select(0, rows)
    columns = torch.arange(width)
    lengths = seq_lens.to(torch.int64).view(-1, 1, 1)
    branch = torch.arange(topk).view(1, topk, 1) * num_steps
    source = columns + torch.where(columns >= lengths, branch, 0)
    table = req_to_token[rows.view(-1, 1, 1), source.clamp_max(pool_len - 1)]
    return table.view(-1, width)


def _table_coordinates(
    req_pool_indices: torch.Tensor, start: torch.Tensor, end: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Segments]:
    """Row and column of every table cell in the ranges [start, end), and their segments."""
    segments = enumerate_segments(end - start)
    rows = req_pool_indices.to(torch.int64)[segments.row]
    return rows, start.to(torch.int64)[segments.row] + segments.offset, segments
