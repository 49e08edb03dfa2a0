"""Attention over the paged KV cache: decode (one new token per request) and extend (several)."""

from sgl_kernel.attention.decode import decode_attention_cpu
from sgl_kernel.attention.extend import extend_attention_cpu

__all__ = ["decode_attention_cpu", "extend_attention_cpu"]
