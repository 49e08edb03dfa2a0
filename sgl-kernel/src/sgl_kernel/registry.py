"""The operators that SGLang calls as `torch.ops.sgl_kernel.<name>`, and their schemas."""

from typing import Any

import torch

from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu
from sgl_kernel.hashing import murmur_hash32_cpu

NAMESPACE = "sgl_kernel"

_DECODE = (
    "decode_attention_cpu(Tensor query, Tensor(a!) k_cache, Tensor(b!) v_cache, "
    "float k_scale, float v_scale, Tensor(c!) output, Tensor? key, Tensor? value, Tensor? loc, "
    "Tensor? attn_logits, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size, "
    "Tensor? encoder_lens=None, Tensor? sinks=None) -> ()"
)
_EXTEND = (
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, "
    "Tensor(a!) o_extend, Tensor k_buffer, Tensor v_buffer, float k_scale, float v_scale, "
    "Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, "
    "Tensor extend_start_loc, int? max_len_extend, float sm_scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens=None, "
    "Tensor? sinks=None, Tensor? tree_mask=None, bool is_causal=True) -> ()"
)
_MURMUR = "murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor"

# Without types of its own.
_new_library: Any = torch.library.Library

# Holds the registrations: they end with this object.
_library: Any = None


def register() -> None:
    """Define the operators and their CPU implementations, once per process.

    Shape functions are given only where SGLang brings none of its own: it registers those of the
    attention operators when it compiles a CPU graph, and torch refuses a second one.
    """
    global _library
    if _library is not None:
        return
    library: Any = _new_library(NAMESPACE, "FRAGMENT")
    for schema, function in (
        (_DECODE, decode_attention_cpu),
        (_EXTEND, extend_attention_cpu),
        (_MURMUR, murmur_hash32_cpu),
    ):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CPU")
    torch.library.register_fake(f"{NAMESPACE}::murmur_hash32_cpu", _murmur_shape, lib=library)
    _library = library


def _murmur_shape(
    seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor
) -> torch.Tensor:
    return seed.new_empty((seed.shape[0], col_indices.shape[0]), dtype=torch.uint32)
