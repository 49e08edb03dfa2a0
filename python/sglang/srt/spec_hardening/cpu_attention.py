"""Whether the CPU attention backend (`intel_amx`) can run on this host.

Upstream ties that backend to AMX instructions and falls back to `torch_native`, which cannot draft
or verify, so EAGLE3 could not start on an ordinary CPU. The backend itself only needs three
operators; where a `sgl_kernel` package brings them, AMX is not needed.

Called by: `srt/arg_groups/overrides.py` (patch `cpu-attention-without-amx`).
"""

from __future__ import annotations

import torch

TORCH_OPERATORS = ("decode_attention_cpu", "extend_attention_cpu")
FUNCTION = "build_draft_decode_metadata_cpu"


def has_cpu_attention_operators() -> bool:
    """True if `sgl_kernel` brings everything that the CPU attention backend calls."""
    try:
        import sgl_kernel
    except ImportError:
        return False
    return hasattr(sgl_kernel, FUNCTION) and all(
        hasattr(torch.ops.sgl_kernel, name) for name in TORCH_OPERATORS
    )
