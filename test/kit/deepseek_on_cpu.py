"""Lets the CPU serve the tiny DeepSeek pairs, for tests: three things that upstream has not there.

- INT4 experts: upstream has no kernel. Which scheme the config means, the parameters it makes and
  how the loader fills them from packed tensors are upstream's own; only the repacking for Marlin
  and the multiplication are replaced, by plain torch.
- A prefill with heads of its own beside a latent cache, which its CPU backend does not know: the
  latent path is taken in prefills too.
- The class of the MLA draft waits for the GPU after it took the embedding, whatever the device.

Imported in a program that is forked before the server starts (`kit.tampered`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
from sglang.srt.layers.quantization.compressed_tensors.schemes import CompressedTensorsWNA16MoE
from sglang.srt.models.deepseek_common.attention_backend_handler import (
    AttentionBackendRegistry,
    AttnForwardMethod,
)


def unpacked(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """[experts, columns, rows] in bfloat16 of packed [experts, rows / 8, columns] int32 and scales
    [experts, rows / group, columns], which is how the engine lays experts out."""
    shifts = torch.arange(8) * 4
    values = ((packed[:, :, None, :] >> shifts[None, None, :, None]) & 15) - 8
    rows = values.flatten(1, 2).float()
    weights = rows.unflatten(1, (scale.shape[1], -1)) * scale.float()[:, :, None, :]
    return weights.flatten(1, 2).transpose(1, 2).to(torch.bfloat16).contiguous()


def process_weights_after_loading(self: Any, layer: Any) -> None:
    layer.plain13 = unpacked(layer.w13_weight_packed, layer.w13_weight_scale)
    layer.plain2 = unpacked(layer.w2_weight_packed, layer.w2_weight_scale)


def apply_weights(self: Any, layer: Any, dispatch_output: Any) -> StandardCombineInput:
    states = dispatch_output.hidden_states
    weights, experts, _ = dispatch_output.topk_output
    made = torch.zeros(states.shape, dtype=torch.float32)
    for expert in experts.unique().tolist():
        rows, places = torch.where(experts == expert)
        gate, up = F.linear(states[rows], layer.plain13[expert]).chunk(2, dim=-1)
        out = F.linear(F.silu(gate) * up, layer.plain2[expert])
        made.index_add_(0, rows, out.float() * weights[rows, places][:, None].float())
    return StandardCombineInput(hidden_states=made.to(states.dtype))


CompressedTensorsWNA16MoE.process_weights_after_loading = process_weights_after_loading
CompressedTensorsWNA16MoE.apply_weights = apply_weights
CompressedTensorsWNA16MoE.create_moe_runner = lambda self, layer, config: None
AttentionBackendRegistry.register("intel_amx", lambda attn, batch: AttnForwardMethod.MLA)
torch.cuda.synchronize = lambda device=None: None
