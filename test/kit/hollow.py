"""Checkpoints with nothing in them: a config and a weight file whose data is a hole.

The header is complete and the file has its full length, so it is a safetensors file like any
other, but takes no space: facts about published drafts can be kept without their weights. Zeros
are a valid `d2t`: draft token i is target token i.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]
_ITEM = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "BOOL": 1}


def write(folder: Path, config: Mapping[str, Any], shapes: Shapes, dtype: str = "BF16") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shapes:
        write_weights(folder / "model.safetensors", shapes, dtype)
    return folder


def write_weights(path: Path, shapes: Shapes, dtype: str = "BF16") -> None:
    header, place = {}, 0
    for name, shape in shapes.items():
        kind = "I64" if name.endswith("d2t") else dtype
        end = place + math.prod(shape) * _ITEM[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + place)


def llama_shapes(
    hidden: int,
    heads: int,
    kv_heads: int,
    head: int,
    inner: int,
    draft_vocab: int | None,
    *,
    slots: int = 3,
    target_hidden: int | None = None,
    layer: str = "midlayer",
    d2t: bool = True,
    norms: Sequence[str] = (),
) -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama-style EAGLE3 draft as its trainers save them."""
    width = target_hidden or hidden
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, slots * width),
        f"{layer}.self_attn.q_proj.weight": (heads * head, 2 * hidden),
        f"{layer}.self_attn.k_proj.weight": (kv_heads * head, 2 * hidden),
        f"{layer}.self_attn.v_proj.weight": (kv_heads * head, 2 * hidden),
        f"{layer}.self_attn.o_proj.weight": (hidden, heads * head),
        f"{layer}.mlp.gate_proj.weight": (inner, hidden),
        f"{layer}.mlp.up_proj.weight": (inner, hidden),
        f"{layer}.mlp.down_proj.weight": (hidden, inner),
        f"{layer}.input_layernorm.weight": (hidden,),
        f"{layer}.hidden_norm.weight": (hidden,),
        f"{layer}.post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    if draft_vocab is not None:
        shapes["lm_head.weight"] = (draft_vocab, hidden)
        if d2t:
            shapes["d2t"] = (draft_vocab,)
    return shapes | {name: (width,) for name in norms}


def mla_shapes(
    hidden: int, heads: int, q_rank: int, kv_rank: int, inner: int, draft_vocab: int, d2t: bool
) -> dict[str, tuple[int, ...]]:
    """The tensors of an MLA draft with DeepSeek's head sizes (128 plain, 64 rotary, 128 value)."""
    layer = "layers.0"
    return {
        "fc.weight": (hidden, 3 * hidden),
        f"{layer}.self_attn.q_a_proj.weight": (q_rank, 2 * hidden),
        f"{layer}.self_attn.q_a_layernorm.weight": (q_rank,),
        f"{layer}.self_attn.q_b_proj.weight": (heads * 192, q_rank),
        f"{layer}.self_attn.kv_a_proj_with_mqa.weight": (kv_rank + 64, 2 * hidden),
        f"{layer}.self_attn.kv_a_layernorm.weight": (kv_rank,),
        f"{layer}.self_attn.kv_b_proj.weight": (heads * 256, kv_rank),
        f"{layer}.self_attn.o_proj.weight": (hidden, heads * 128),
        f"{layer}.mlp.gate_proj.weight": (inner, hidden),
        f"{layer}.mlp.up_proj.weight": (inner, hidden),
        f"{layer}.mlp.down_proj.weight": (hidden, inner),
        f"{layer}.input_layernorm.weight": (hidden,),
        f"{layer}.hidden_norm.weight": (hidden,),
        f"{layer}.post_attention_layernorm.weight": (hidden,),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft_vocab, hidden),
        **({"d2t": (draft_vocab,)} if d2t else {}),
        "embed_tokens.weight": (163840, hidden),
    }
