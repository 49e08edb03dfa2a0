"""Reading and writing rows of the KV cache."""

from typing import NoReturn

import torch


def store(cache: torch.Tensor, loc: torch.Tensor, rows: torch.Tensor) -> None:
    """Write n new rows, of KV * D entries, into the cache [slots, KV, D] at `loc` [n], in place."""
    if rows.dim() != 3:
        rows = rows.reshape(-1, cache.shape[1], cache.shape[2])
    if rows.dtype != cache.dtype:
        rows = rows.to(cache.dtype)
    if loc.dtype != torch.int64:
        loc = loc.to(torch.int64)
    if cache.element_size() == 1:
        cache, rows = cache.view(torch.uint8), rows.view(torch.uint8)
    cache.index_copy_(0, loc, rows)


def load(
    cache: torch.Tensor, slots: torch.Tensor, batch: int, dtype: torch.dtype, scale: float
) -> torch.Tensor:
    """Gather rows as [batch, T, KV, D] of `dtype`, slots integer [batch * T].

    An 8-bit cache is widened and multiplied by `scale`. Any other cache holds plain values,
    whatever scale the checkpoint carries for the quantised case.
    """
    if cache.element_size() == 1:
        rows = cache.view(torch.uint8).index_select(0, slots).view(cache.dtype).to(dtype)
        if scale != 1.0:
            rows = rows * scale
    else:
        rows = cache.index_select(0, slots)
        if rows.dtype != dtype:
            rows = rows.to(dtype)
    return rows.view(batch, -1, cache.shape[1], cache.shape[2])


def refuse_cross_attention(operator: str) -> NoReturn:
    """Encoder-decoder models are not served by this package."""
    raise NotImplementedError(
        f"{operator}: cross attention (encoder_lens) is not offered by the CPU package "
        "sglang-kernel +cpu"
    )
