"""Kimi-K2.5's vision tower at its smallest, so that the wrapper has all of its weights.

The tests send no images; what matters is that the checkpoint holds the tensors which the wrapper
loads, and that these are kept apart from the language model's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_spec.models.deepseek.plan import HIDDEN

if TYPE_CHECKING:
    import torch

WIDTH, INNER, HEADS, BLOCKS = 64, 128, 2, 1
PATCH, GRID, FRAMES, MERGE = 14, 8, 4, 2


def config() -> dict[str, Any]:
    """`vision_config`: the published keys, and the names by which SGLang's class reads them."""
    return {
        "patch_size": PATCH,
        "init_pos_emb_height": GRID,
        "init_pos_emb_width": GRID,
        "init_pos_emb_time": FRAMES,
        "pos_emb_type": "divided_fixed",
        "merge_kernel_size": [MERGE, MERGE],
        "merge_type": "sd2_tpool",
        "video_attn_type": "spatial_temporal",
        "mm_projector_type": "patchmerger",
        "mm_hidden_size": WIDTH,
        "projector_hidden_act": "gelu",
        "projector_ln_eps": 1e-5,
        "text_hidden_size": HIDDEN,
        "vt_hidden_size": WIDTH,
        "vt_intermediate_size": INNER,
        "vt_num_attention_heads": HEADS,
        "vt_num_hidden_layers": BLOCKS,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_hidden_layers": BLOCKS,
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of the tower and of the projector, by its name in the checkpoint."""
    merged = WIDTH * MERGE * MERGE
    found: dict[str, tuple[int, ...]] = {
        "vision_tower.patch_embed.proj.weight": (WIDTH, 3, PATCH, PATCH),
        "vision_tower.patch_embed.proj.bias": (WIDTH,),
        "vision_tower.patch_embed.pos_emb.weight": (GRID, GRID, WIDTH),
        "vision_tower.encoder.final_layernorm.weight": (WIDTH,),
        "vision_tower.encoder.final_layernorm.bias": (WIDTH,),
        "mm_projector.pre_norm.weight": (WIDTH,),
        "mm_projector.pre_norm.bias": (WIDTH,),
        "mm_projector.proj.0.weight": (merged, merged),
        "mm_projector.proj.0.bias": (merged,),
        "mm_projector.proj.2.weight": (HIDDEN, merged),
        "mm_projector.proj.2.bias": (HIDDEN,),
    }
    for block in range(BLOCKS):
        found |= {
            f"vision_tower.encoder.blocks.{block}.{name}": shape
            for name, shape in {
                "wqkv.weight": (3 * WIDTH, WIDTH),
                "wqkv.bias": (3 * WIDTH,),
                "wo.weight": (WIDTH, WIDTH),
                "wo.bias": (WIDTH,),
                "norm0.weight": (WIDTH,),
                "norm0.bias": (WIDTH,),
                "norm1.weight": (WIDTH,),
                "norm1.bias": (WIDTH,),
                "mlp.fc0.weight": (INNER, WIDTH),
                "mlp.fc0.bias": (INNER,),
                "mlp.fc1.weight": (WIDTH, INNER),
                "mlp.fc1.bias": (WIDTH,),
            }.items()
        }
    return found


def weights(dice: torch.Generator) -> dict[str, torch.Tensor]:
    """Small random values in bfloat16."""
    import torch

    return {
        name: (0.02 * torch.randn(shape, generator=dice)).to(torch.bfloat16)
        for name, shape in shapes().items()
    }
