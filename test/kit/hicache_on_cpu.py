"""Lets the CPU serve with a hierarchical KV cache, for tests: things upstream does for CUDA.

- Host memory is pinned by the CUDA runtime; here it is plain memory.
- 10 GB of the host's memory are kept free of it, which a test host may not have.
- The copies of `--hicache-io-backend direct` are one operator of `sgl_kernel`; here they are torch.

What is copied, when, and for which pools (target, and draft beside it) is upstream's own.
Imported in a program that is forked before the server starts (`kit.tampered`).
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.pool_host import base, common, mha


def allocate(
    dims: tuple[int, ...], dtype: torch.dtype, device: str, allocator: Any, **_: Any
) -> torch.Tensor:
    made: torch.Tensor = allocator.allocate(dims, dtype=dtype, device=device)
    return made


def transfer_kv_direct(
    src_layers: list[torch.Tensor],
    dst_layers: list[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copy slots (first dimension) of each layer; whole pages, so slot by slot is the same."""
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst_indices.long()] = source[src_indices.long()].to(target.device)


common.ALLOC_MEMORY_FUNCS["cpu"] = allocate
base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0
mha.transfer_kv_direct = transfer_kv_direct
