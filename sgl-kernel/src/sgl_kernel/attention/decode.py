"""Decode attention: one query token per request over that request's cached keys."""

import torch

from sgl_kernel.attention.cache import load, refuse_cross_attention, store
from sgl_kernel.attention.kernel import Scoring, attend, fold, fold_sinks, row_count, unfold
from sgl_kernel.attention.plan import Layout, Requests, plan


def decode_attention_cpu(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float,
    v_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor | None,
    attn_logits: torch.Tensor | None,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Store the new keys and values, then attend.

    Written in place: `k_cache`, `v_cache`, `output`.

    Caller: `srt/layers/attention/intel_amx_backend.py: forward_decode`, as
    `torch.ops.sgl_kernel.decode_attention_cpu`.

    Args:
        query: [bs, H, D] float32, bfloat16 or float16.
        k_cache, v_cache: [slots, KV, D] and [slots, KV, Dv], dtype of query or an 8-bit float.
        k_scale, v_scale: factors that restore 8-bit keys and values; without effect on other
            caches.
        output: [bs, H, Dv], written.
        key, value: [bs, KV, D] and [bs, KV, Dv] (or flattened), or None where the caller has stored
            them already.
        loc: integer [bs], the slots that `key` and `value` go to.
        attn_logits: scratch space of other implementations; neither read nor written.
        req_to_token: integer [requests, width], the slot of every position.
        req_pool_indices: integer [bs], each request's row of the table.
        seq_lens: integer [bs], keys per request, the new one included; at least 1.
        logit_cap: 0 for none.
        sliding_window_size: visible keys, the query's own included; 0 or less for all.
        sinks: [H], one extra logit per head, or None.

    Raises:
        NotImplementedError: cross attention.
        ValueError: new keys without the slots they go to.
    """
    if is_cross_attn or encoder_lens is not None:
        refuse_cross_attention("decode_attention_cpu")
    if key is not None and value is not None:
        if loc is None:
            raise ValueError("decode_attention_cpu: key and value are given, loc is None")
        store(k_cache, loc, key)
        store(v_cache, loc, value)
    scoring = Scoring(sm_scale, logit_cap, sinks)
    scales = (k_scale, v_scale)
    batch = seq_lens.shape[0]
    if batch == 1:
        end = int(seq_lens)
        first = max(0, end - sliding_window_size) if sliding_window_size > 0 else 0
        slots = req_to_token[int(req_pool_indices), first:end]
        result = _attend(query, k_cache, v_cache, scales, slots, scoring)
        output.view(result.shape).copy_(result)
        return
    heads_per_kv = query.shape[1] // k_cache.shape[1]
    requests = Requests(
        tuple(req_pool_indices.tolist()),
        tuple(seq_lens.tolist()),
        (1,) * batch,
        tuple(range(batch)),
    )
    layout = Layout(
        table_width=req_to_token.shape[1],
        heads_per_kv=heads_per_kv,
        key_bytes=k_cache.shape[1] * k_cache.shape[2] * query.element_size(),
        window=max(0, sliding_window_size),
        is_causal=False,
        dtype=query.dtype,
    )
    table = req_to_token.reshape(-1)
    for group in plan(requests, layout):
        slots = table.index_select(0, group.cells)
        result = _attend(
            query[group.tokens], k_cache, v_cache, scales, slots, scoring, group.batch, group.bias
        )
        if isinstance(group.tokens, slice):
            output[group.tokens].view(result.shape).copy_(result)
        else:
            output[group.tokens] = result.reshape(-1, *output.shape[1:])


def _attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    scales: tuple[float, float],
    slots: torch.Tensor,
    scoring: Scoring,
    batch: int = 1,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Queries [batch, H, D] over the rows at `slots` [batch * T], as [batch, KV, G, Dv]."""
    kv_heads = k_cache.shape[1]
    group = q.shape[1] // kv_heads
    rows = row_count(1, group, slots.shape[0], q.dtype)
    k = load(k_cache, slots, batch, q.dtype, scales[0]).transpose(1, 2)
    v = load(v_cache, slots, batch, q.dtype, scales[1]).transpose(1, 2)
    if scoring.sinks is not None:
        scoring = scoring._replace(sinks=fold_sinks(scoring.sinks, kv_heads, rows))
    return unfold(attend(fold(q, batch, kv_heads, rows), k, v, scoring, bias), 1, group)
