"""Extend attention: several new tokens per request. Prefill, verify and draft-extend."""

from typing import NamedTuple

import torch

from sgl_kernel.attention.cache import load, refuse_cross_attention
from sgl_kernel.attention.kernel import (
    Scoring,
    attend,
    fold,
    fold_sinks,
    is_fused,
    row_count,
    unfold,
)
from sgl_kernel.attention.masks import causal_bias, tree_bias
from sgl_kernel.attention.plan import MAX_FOLDED_ROWS, Group, Layout, Requests, plan

# Long extends are cut into blocks of this many queries.
_QUERY_BLOCK = 256


class _Call(NamedTuple):
    """What stays the same for all requests of one call."""

    q: torch.Tensor
    k: torch.Tensor | None
    v: torch.Tensor | None
    output: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    scales: tuple[float, float]
    scoring: Scoring
    window: int
    is_causal: bool


class _Part(NamedTuple):
    """Requests computed together: their slots, right-aligned, and their rows in q, k, v and o."""

    batch: int
    queries: int
    rows: int
    slots: torch.Tensor
    tokens: slice | torch.Tensor | None  # None for all rows in order
    bias: torch.Tensor | None  # for folded rows
    tree: torch.Tensor | None  # bool [batch, n, n]


def extend_attention_cpu(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor | None,
    v_extend: torch.Tensor | None,
    o_extend: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int | None,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    tree_mask: torch.Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """Attend from every new token to its request's prefix and to the new tokens it may see; writes
    `o_extend` in place.

    Caller: `srt/layers/attention/intel_amx_backend.py: forward_extend`, as
    `torch.ops.sgl_kernel.extend_attention_cpu`. The cache is only read. The new tokens' keys and
    values come from `k_extend` and `v_extend` where given, from the cache where None (a layer that
    shares another layer's cache).

    Args:
        q_extend: [tokens, H, D] float32, bfloat16 or float16.
        k_extend, v_extend: [tokens, KV, D] and [tokens, KV, Dv] (or flattened), or None.
        o_extend: [tokens, H, Dv], written at the rows of the requests.
        k_buffer, v_buffer: [slots, KV, D] and [slots, KV, Dv], dtype of q or an 8-bit float.
        k_scale, v_scale: factors that restore 8-bit keys and values; without effect on other
            caches.
        req_to_token, req_pool_indices: the slot table and each request's row of it.
        seq_lens, extend_seq_lens: integer [bs], keys per request (new ones included) and new tokens
            per request.
        extend_start_loc: integer [bs], each request's first row in q, k, v and o.
        max_len_extend: not needed here.
        logit_cap: 0 for none.
        sliding_window_size: visible keys, the query's own included; 0 or less for all.
        sinks: [H], one extra logit per head, or None.
        tree_mask: bool, bs * n * n entries where every request extends by n: which draft nodes a
            draft node sees. The prefix stays visible. None means causal among the new tokens.
        is_causal: False lets every new token see all keys of its request.

    Raises:
        NotImplementedError: cross attention; a sliding window or a tree mask without causality.
        ValueError: a tree mask that is not bs * n * n, or requests that extend by different n under
            one.
    """
    if is_cross_attn or encoder_lens is not None:
        refuse_cross_attention("extend_attention_cpu")
    if not is_causal and (sliding_window_size > 0 or tree_mask is not None):
        raise NotImplementedError(
            "extend_attention_cpu: is_causal=False with a sliding window or a tree mask is not "
            "offered by the CPU package sglang-kernel +cpu"
        )
    call = _Call(
        q_extend,
        k_extend if v_extend is not None else None,
        v_extend if k_extend is not None else None,
        o_extend,
        k_buffer,
        v_buffer,
        (k_scale, v_scale),
        Scoring(sm_scale, logit_cap, sinks),
        max(0, sliding_window_size),
        is_causal,
    )
    queries = extend_seq_lens.tolist()
    tree = None if tree_mask is None else _tree_per_request(tree_mask, queries)
    if len(queries) == 1:
        if queries[0] > 0:
            row = req_to_token[int(req_pool_indices)]
            _extend(
                call, _single(call, row, int(seq_lens), queries[0], int(extend_start_loc), tree)
            )
        return
    requests = Requests(
        tuple(req_pool_indices.tolist()),
        tuple(seq_lens.tolist()),
        tuple(queries),
        tuple(extend_start_loc.tolist()),
    )
    heads_per_kv = q_extend.shape[1] // k_buffer.shape[1]
    causal = is_causal and tree is None
    layout = Layout(
        table_width=req_to_token.shape[1],
        heads_per_kv=heads_per_kv,
        key_bytes=k_buffer.shape[1] * k_buffer.shape[2] * q_extend.element_size(),
        window=call.window,
        is_causal=causal,
        dtype=q_extend.dtype,
    )
    table = req_to_token.reshape(-1)
    for group in plan(requests, layout):
        _extend(call, _grouped(group, table, tree))


def _tree_per_request(tree_mask: torch.Tensor, queries: list[int]) -> torch.Tensor:
    """The flat tree mask as bool [bs, n, n]."""
    n = queries[0]
    if any(new != n for new in queries):
        raise ValueError(
            f"extend_attention_cpu: a tree mask needs equal extend lengths, got {queries}"
        )
    if tree_mask.numel() != len(queries) * n * n:
        raise ValueError(
            f"extend_attention_cpu: tree_mask has {tree_mask.numel()} entries, "
            f"expected {len(queries)} requests * {n} * {n}; only the QLEN_ONLY layout is read"
        )
    return tree_mask.view(len(queries), n, n).to(torch.bool)


def _single(
    call: _Call, row: torch.Tensor, end: int, new: int, start: int, tree: torch.Tensor | None
) -> _Part:
    """The part of a batch of one, without a plan."""
    first = max(0, end - new - call.window + 1) if call.window > 0 else 0
    group = call.q.shape[1] // call.k_cache.shape[1]
    rows = row_count(new, group, end - first, call.q.dtype)
    bias = None
    if call.is_causal and tree is None and new > 1 and rows <= MAX_FOLDED_ROWS + 1:
        bias = causal_bias(new, group, rows, end - first, call.window, call.q.dtype)
    tokens = None if new == call.q.shape[0] else slice(start, start + new)
    return _Part(1, new, rows, row[first:end], tokens, bias, tree)


def _grouped(group: Group, table: torch.Tensor, tree: torch.Tensor | None) -> _Part:
    slots = table.index_select(0, group.cells)
    if tree is not None and group.batch != tree.shape[0]:
        tree = tree.index_select(0, group.requests)
    return _Part(group.batch, group.queries, group.rows, slots, group.tokens, group.bias, tree)


def _extend(call: _Call, part: _Part) -> None:
    tokens = part.tokens
    q = call.q if tokens is None else call.q[tokens]
    k = _new_over_cached(call.k_cache, call.k, part, q.dtype, call.scales[0])
    v = _new_over_cached(call.v_cache, call.v, part, q.dtype, call.scales[1])
    if part.rows <= MAX_FOLDED_ROWS + 1:
        result = _attend_folded(call, part, q, k, v)
    else:
        result = _attend_blocks(call, part, q, k, v)
    if isinstance(tokens, torch.Tensor):
        call.output[tokens] = result.reshape(-1, *call.output.shape[1:])
    else:
        output = call.output if tokens is None else call.output[tokens]
        output.view(result.shape).copy_(result)


def _new_over_cached(
    cache: torch.Tensor,
    new: torch.Tensor | None,
    part: _Part,
    dtype: torch.dtype,
    scale: float,
) -> torch.Tensor:
    """Keys or values [batch, T, KV, D] from the cache, the new tokens' own last where given."""
    if new is None:
        return load(cache, part.slots, part.batch, dtype, scale)
    if part.tokens is not None:
        new = new[part.tokens]
    new = new.view(part.batch, part.queries, cache.shape[1], cache.shape[2])
    if part.slots.shape[0] == part.batch * part.queries:
        return new
    rows = load(cache, part.slots, part.batch, dtype, scale)
    rows[:, -part.queries :] = new
    return rows


def _attend_folded(
    call: _Call, part: _Part, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """Few queries: heads of a KV head and queries share rows. Returns [batch, e, KV, G, Dv]."""
    kv_heads = k.shape[2]
    group = q.shape[1] // kv_heads
    bias = part.bias
    if part.tree is not None:
        tree = tree_bias(part.tree, group, part.rows, k.shape[1], call.window, q.dtype)
        bias = tree if bias is None else tree + bias
    scoring = call.scoring
    if scoring.sinks is not None:
        scoring = scoring._replace(sinks=fold_sinks(scoring.sinks, kv_heads, part.rows))
    folded = fold(q, part.batch, kv_heads, part.rows)
    out = attend(folded, k.transpose(1, 2), v.transpose(1, 2), scoring, bias)
    return unfold(out, part.queries, group)


def _attend_blocks(
    call: _Call, part: _Part, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """Many queries of one request, each query head a matrix of its own: [e, KV, G, Dv]."""
    new, heads, _ = q.shape
    keys, kv_heads = k.shape[1], k.shape[2]
    group = heads // kv_heads
    queries = q.view(new, kv_heads, group, -1).permute(1, 2, 0, 3)
    k_heads = k[0].transpose(0, 1).unsqueeze(1).expand(-1, group, -1, -1)
    v_heads = v[0].transpose(0, 1).unsqueeze(1).expand(-1, group, -1, -1)
    scoring = call.scoring
    if scoring.sinks is not None:
        scoring = scoring._replace(sinks=scoring.sinks.view(kv_heads, group, 1))
    if not call.is_causal:
        return attend(queries, k_heads, v_heads, scoring).permute(2, 0, 1, 3)
    if part.tree is not None:
        bias = tree_bias(part.tree, 1, new, keys, call.window, q.dtype)
        return attend(queries, k_heads, v_heads, scoring, bias).permute(2, 0, 1, 3)
    if keys == new and call.window == 0 and is_fused(q, v, scoring):
        return attend(queries, k_heads, v_heads, scoring, is_causal=True).permute(2, 0, 1, 3)
    out = q.new_empty((new, kv_heads, group, v.shape[3]))
    for first in range(0, new, _QUERY_BLOCK):
        last = min(first + _QUERY_BLOCK, new)
        end = keys - new + last
        begin = max(0, keys - new + first - call.window + 1) if call.window > 0 else 0
        bias = causal_bias(last - first, 1, last - first, end - begin, call.window, q.dtype)
        block = attend(
            queries[:, :, first:last],
            k_heads[:, :, begin:end],
            v_heads[:, :, begin:end],
            scoring,
            bias,
        )
        out[first:last] = block.permute(2, 0, 1, 3)
    return out
