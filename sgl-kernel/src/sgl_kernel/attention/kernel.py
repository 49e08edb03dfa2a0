"""The attention kernel proper: dense queries against dense keys and values.

Folding. The G query heads that share one KV head become rows of one small matrix, so K and V are
read once per KV head and never repeated: queries [B * e, H, D] turn into [B, KV, R, D], R = e * G,
row i * G + g being query i of head g. With few rows this is several times faster than giving every
query head its own pass over K.
"""

from typing import NamedTuple

import torch

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

# Score matrices of the plain path stay below this many float32 entries.
_MAX_SCORES = 1 << 21
# From this many keys on, one spare row is cheaper than a row count of 3 modulo 4.
_MIN_KEYS_TO_PAD = 256


class Scoring(NamedTuple):
    """How a dot product becomes a weight."""

    scale: float
    logit_cap: float = 0.0  # scores become cap * tanh(score / cap); 0 means no cap
    sinks: torch.Tensor | None = (
        None  # [H]: one more logit per head that takes weight and gives no value
    )


def row_count(queries: int, group: int, keys: int, dtype: torch.dtype) -> int:
    """Rows of a folded query block, a spare row included where it makes the kernel faster."""
    rows = queries * group
    if rows == 1:
        # The kernel takes a single row of a 16-bit type element by element.
        return 1 if dtype == torch.float32 else 2
    return rows + 1 if rows % 4 == 3 and keys >= _MIN_KEYS_TO_PAD else rows


def fold(q: torch.Tensor, batch: int, kv_heads: int, rows: int) -> torch.Tensor:
    """Queries [B * e, H, D] as [B, KV, rows, D], a view where possible. Spare rows are zero."""
    tokens, heads, dim = q.shape
    queries, group = tokens // batch, heads // kv_heads
    if queries == 1:
        folded = q.view(batch, kv_heads, group, dim)
    else:
        split = q.view(batch, queries, kv_heads, group, dim)
        folded = split.transpose(1, 2).reshape(batch, kv_heads, queries * group, dim)
    spare = rows - queries * group
    return torch.nn.functional.pad(folded, (0, 0, 0, spare)) if spare else folded


def fold_sinks(sinks: torch.Tensor | None, kv_heads: int, rows: int) -> torch.Tensor | None:
    """Sinks [H] laid out as folded rows: [1, KV, rows]."""
    if sinks is None:
        return None
    per_head = sinks.view(1, kv_heads, -1)
    repeats = -(-rows // per_head.shape[2])
    return per_head.repeat(1, 1, repeats)[:, :, :rows]


def unfold(out: torch.Tensor, queries: int, group: int) -> torch.Tensor:
    """Results [B, KV, rows, Dv] as [B, e, KV, G, Dv], spare rows dropped; a view.

    For one query the second dimension is left out.
    """
    if out.shape[2] != queries * group:
        out = out.narrow(2, 0, queries * group)
    if queries == 1:
        return out
    batch, kv_heads, _, dim = out.shape
    return out.view(batch, kv_heads, queries, group, dim).transpose(1, 2)


def is_fused(q: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> bool:
    """Whether `attend` is one fused call; otherwise scores are materialised, block by block."""
    return scoring.logit_cap <= 0 and q.shape[-1] == v.shape[-1]


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scoring: Scoring,
    bias: torch.Tensor | None = None,
    is_causal: bool = False,
) -> torch.Tensor:
    """Softmax attention with float32 accumulation.

    Args:
        q: [B, N, R, D].
        k, v: [B, N, T, D] and [B, N, T, Dv], any strides with a dense last dimension, dtype of q.
        scoring: with `sinks`, if any, broadcastable to [B, N, R].
        bias: additive, broadcastable to [B, N, R, T], 0 where visible and -inf where not; every row
            sees a key.
        is_causal: row r sees keys up to r; only where R == T, no bias is given and the call is
            fused.

    Returns:
        [B, N, R, Dv].
    """
    if not is_fused(q, v, scoring):
        return _attend_plain(q, k, v, scoring, bias)
    out: torch.Tensor
    out, lse = _flash(q, k, v, 0.0, is_causal, attn_mask=bias, scale=scoring.scale)
    if scoring.sinks is not None:
        out *= torch.sigmoid(lse - scoring.sinks.float()).unsqueeze(-1)
    return out


def _attend_plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scoring: Scoring,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The same in plain float32 steps, block by block: caps the logits, allows Dv != D."""
    rows, keys = q.shape[2], k.shape[2]
    queries = q.float() * scoring.scale
    k_columns, values = k.float().transpose(2, 3), v.float()
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    block = max(1, _MAX_SCORES // max(1, q.shape[0] * q.shape[1] * keys))
    for first in range(0, rows, block):
        part = slice(first, min(first + block, rows))
        scores = queries[:, :, part] @ k_columns
        if scoring.logit_cap > 0:
            scores = torch.tanh(scores.div_(scoring.logit_cap)).mul_(scoring.logit_cap)
        if bias is not None:
            scores += bias[..., part, :] if bias.shape[-2] > 1 else bias
        result = torch.softmax(scores, -1) @ values
        if scoring.sinks is not None:
            sinks = scoring.sinks.float().expand(q.shape[:3])[:, :, part]
            result *= torch.sigmoid(torch.logsumexp(scores, -1) - sinks).unsqueeze(-1)
        out[:, :, part] = result.to(out.dtype)
    return out
