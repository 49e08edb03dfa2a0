"""Moving KV rows inside the cache, in every layer's buffers, given only their addresses."""

import ctypes

import torch

_WRITABLE = 0x200  # PyBUF_WRITE
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_memory_view.restype = ctypes.py_object


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor,
    strides: torch.Tensor,
    tgt_loc: torch.Tensor,
    src_loc: torch.Tensor,
) -> None:
    """Copy row `src_loc[i]` to row `tgt_loc[i]` of every buffer, in place.

    Caller: `kernels/ops/kvcache/cache_move.py: copy_all_layer_kv_cache_func`, from `move_kv_cache`
    and from the pool's warm-up. All sources are read before any target is written, so the two sets
    may overlap: compacting an accepted path moves rows onto rows that are themselves sources.

    Args:
        data_ptrs: integer [buffers], the address of each buffer (K and V of each layer).
        strides: integer [buffers], bytes of one row, which is also the distance between rows.
        tgt_loc, src_loc: integer [n], row numbers. Where a target occurs twice its sources must be
            equal.

    Raises:
        ValueError: lengths differ, or a row number is negative. An upper bound is not known here:
            the caller checks it.
    """
    if tgt_loc.numel() != src_loc.numel():
        raise ValueError(
            f"copy_all_layer_kv_cache_cpu: {tgt_loc.numel()} targets for {src_loc.numel()} sources"
        )
    if tgt_loc.numel() == 0:
        return
    target = tgt_loc.reshape(-1).to(torch.int64)
    source = src_loc.reshape(-1).to(torch.int64)
    lowest, highest = torch.cat((target, source)).aminmax()
    if int(lowest) < 0:
        raise ValueError(f"copy_all_layer_kv_cache_cpu: negative row {int(lowest)}")
    rows = int(highest) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        buffer = _rows_at(address, rows, stride)
        buffer.index_copy_(0, target, buffer.index_select(0, source))


def _rows_at(address: int, rows: int, stride: int) -> torch.Tensor:
    """A view of foreign memory as [rows, stride in words]; valid only while its owner lives."""
    dtype = torch.int64 if stride % 8 == 0 else torch.uint8
    view = _memory_view(address, rows * stride, _WRITABLE)
    return torch.frombuffer(view, dtype=dtype).view(rows, -1)
