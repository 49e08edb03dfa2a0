"""What the triton decode kernel reads when a chain's verify is a decode of one row a draft token.

Row `b * width + j` is draft `j` of request `b`. Its keys and values are those of the request's
slots 0 to seq_len + j in `req_to_token`: the prefix, the drafts before it, and its own, which the
layer has written before it attends. Rows of one request read the same slots, and the kernel takes
them as one list a row, so the list of a request's prefix is there `width` times (8 bytes a token).

Called by: `layers/attention/triton_backend.py` (patch `verify-as-decode`).
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.srt.runtime_context import get_spec

from .choice import AUTO, DECODE, EXTEND, FLAG, Facts, VerifyAttentionError, as_decode, obstacles

logger = logging.getLogger(__name__)


def lengths(seq_lens: torch.Tensor, width: int, longest: int) -> torch.Tensor:
    """Slots that each row reads: [requests] of prefixes to [requests * width] of rows.

    A draft past the context's end can never be put out, so its row stops at `longest`; no buffer
    that holds `longest` slots a row is then too small.
    """
    steps = torch.arange(1, width + 1, device=seq_lens.device, dtype=seq_lens.dtype)
    return (seq_lens[:, None] + steps).clamp_(max=longest).flatten()


def for_backend(backend: Any, model_runner: Any) -> VerifyRows | None:
    """The rows of a target's triton backend; None where its verify keeps the extend kernel.

    Args:
        backend: a `TritonAttnBackend` at the end of its `__init__`.
        model_runner: the runner it was made for.

    Raises:
        VerifyAttentionError: the launch demands `decode` and the loaded model does not allow it.
    """
    mode = get_spec().speculative_verify_attention
    if mode == EXTEND or backend.is_draft_runner:
        return None
    facts = _facts(backend, model_runner.model_config)
    if not as_decode(mode, facts):
        logger.info("Verify attends with the extend kernel: %s", "; ".join(obstacles(facts)))
        return None
    rows = VerifyRows(backend)
    logger.info("Verify attends as a decode of %d rows a request", rows.width)
    return rows


def _facts(backend: Any, model: Any) -> Facts:
    from sglang.srt.configs.hybrid_arch import mambaish_config

    window = backend.sliding_window_size
    return Facts(
        topk=backend.topk,
        deterministic=backend.enable_deterministic,
        dcp_size=backend.dcp_size,
        sliding_window=window is not None and window > 0,
        latent=backend.use_mla,
        recurrent=mambaish_config(model) is not None,
        encoder_decoder=model.is_encoder_decoder,
        diffusion=backend.dllm_block_size is not None,
        translated=backend.kv_index_translator.reads_are_translated,
    )


class VerifyRows:
    """Builds decode metadata for the verifies of one backend, eagerly and for CUDA graphs.

    Attributes:
        width: most rows a request, which is the number of draft tokens.
        indptr: where each row's slots begin, int32 [requests * width + 1]; read by graphs.
    """

    def __init__(self, backend: Any) -> None:
        self.width: int = max(
            backend.num_draft_tokens or 0, backend.target_verify_num_tokens_per_req
        )
        most = backend.req_to_token_pool.size * self.width
        self.indptr = torch.zeros((most + 1,), dtype=torch.int32, device=backend.device)

    def eager(self, backend: Any, batch: Any) -> Any:
        """`ForwardMetadata` of a verify that no graph was captured for."""
        width = backend._target_verify_num_tokens_per_req(batch.spec_info)
        requests = len(batch.req_pool_indices)
        rows = requests * width
        known = batch.seq_lens_sum
        most = rows * backend.max_context_len
        if known is not None:
            most = min(most, width * known + requests * width * (width + 1) // 2)
        indices = torch.empty((most,), dtype=torch.int64, device=backend.device)
        shape = (rows, backend.num_head, backend.max_kv_splits)
        logits = (*shape, backend.v_head_dim)
        splits = torch.empty((rows,), dtype=torch.int32, device=backend.device)
        uneven = torch.zeros((1,), dtype=torch.int32, device=backend.device)
        self._fill(
            backend, batch.kv_loc_plan, batch.seq_lens[:requests], batch.req_pool_indices, width,
            indices, splits, uneven,
        )  # fmt: skip
        return _metadata(
            attn_logits=torch.empty(logits, dtype=torch.float32, device=backend.device),
            attn_lse=torch.empty(shape, dtype=torch.float32, device=backend.device),
            num_kv_splits=splits,
            kv_indptr=self.indptr[: rows + 1],
            kv_indices=indices,
            uneven_batch=uneven,
        )

    def fill(
        self, backend: Any, plan: Any, seq_lens: torch.Tensor, pool: torch.Tensor, spec_info: Any
    ) -> None:
        """Write the buffers that captured graphs read, before one is captured or replayed.

        Args:
            seq_lens: tokens of each request before its drafts; rows that pad the graph included.
            pool: the requests' rows in `req_to_token`.
        """
        width = backend._target_verify_num_tokens_per_req(spec_info)
        requests = len(pool)
        splits = backend.cuda_graph_num_kv_splits[: requests * width]
        self._fill(
            backend, plan, seq_lens[:requests], pool, width,
            backend.cuda_graph_kv_indices, splits, backend.cuda_graph_uneven_batch,
        )  # fmt: skip

    def captured(self, backend: Any, requests: int, spec_info: Any) -> Any:
        """`ForwardMetadata` for capturing: the buffers that `fill` writes."""
        rows = requests * backend._target_verify_num_tokens_per_req(spec_info)
        return _metadata(
            attn_logits=backend.cuda_graph_attn_logits,
            attn_lse=backend.cuda_graph_attn_lse,
            num_kv_splits=backend.cuda_graph_num_kv_splits,
            kv_indptr=self.indptr[: rows + 1],
            kv_indices=backend.cuda_graph_kv_indices,
            uneven_batch=backend.cuda_graph_uneven_batch,
        )

    def _fill(
        self, backend: Any, plan: Any, seq_lens: torch.Tensor, pool: torch.Tensor, width: int,
        indices: torch.Tensor, splits: torch.Tensor, uneven: torch.Tensor,
    ) -> None:  # fmt: skip
        rows = len(pool) * width
        if rows >= len(self.indptr):
            raise VerifyAttentionError(
                f"{FLAG}: a verify of {len(pool)} requests and {width} tokens each has more rows "
                f"than the {len(self.indptr) - 1} that were made room for."
            )
        backend._fill_kv_indptr_and_indices(
            plan,
            rows,
            lengths(seq_lens, width, backend.max_context_len),
            pool.repeat_interleave(width),
            indices,
            self.indptr[: rows + 1],
        )
        backend.get_num_kv_splits(splits, seq_lens, uneven)

    def attend(
        self, backend: Any, q: torch.Tensor, layer: Any, batch: Any, sinks: Any, score_mod: Any
    ) -> torch.Tensor:
        """One layer's output for a verify whose keys and values are in the cache already.

        Args:
            q: [rows, heads * head size].

        Raises:
            VerifyAttentionError: a layer that the decode kernel would attend to otherwise; at
                the first forward, so before the server is ready.
        """
        _check_layer(layer, score_mod)
        found: torch.Tensor = backend.forward_decode(
            q, None, None, layer, batch, save_kv_cache=False, sinks=sinks
        )
        wanted = getattr(batch, "_attn_output", None)
        if wanted is None:
            return found
        given: torch.Tensor = wanted
        given.view_as(found).copy_(found)
        return given


def _check_layer(layer: Any, score_mod: Any) -> None:
    from sglang.srt.layers.radix_attention import AttentionType

    window = layer.sliding_window_size
    odd = {
        "attends across": layer.is_cross_attention,
        f"is {layer.attn_type}": layer.attn_type != AttentionType.DECODER,
        "has a sliding window": window is not None and window > -1,
        "changes its scores": score_mod is not None,
    }
    found = [name for name, is_so in odd.items() if is_so]
    if found:
        raise VerifyAttentionError(
            f"{FLAG} {DECODE} or {AUTO}: layer {layer.layer_id} of the target "
            f"{' and '.join(found)}, which a verify as a decode does not do. Write {EXTEND}."
        )


def _metadata(**fields: Any) -> Any:
    from sglang.srt.layers.attention.triton_backend import ForwardMetadata

    absent = (
        "max_extend_len", "qo_indptr", "custom_mask", "mask_indptr", "window_kv_indptr",
        "window_kv_indices", "window_num_kv_splits", "window_kv_offsets",
    )  # fmt: skip
    return ForwardMetadata(**fields, **dict.fromkeys(absent))
