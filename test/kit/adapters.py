"""Small random LoRA adapters for a checkpoint, in PEFT's format."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK = 4
TARGETS = {"q_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn", "down_proj": "mlp"}


def write(folder: Path, checkpoint: Path, seed: int, size: float) -> Path:
    """An adapter of `TARGETS` in every layer of the checkpoint, written into `folder`.

    Args:
        size: of a changed output, about, for an input of size 1.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    wide, keys = heads * head, config["num_key_value_heads"] * head
    shapes = {
        "q_proj": (hidden, wide),
        "v_proj": (hidden, keys),
        "o_proj": (wide, hidden),
        "down_proj": (config["intermediate_size"], hidden),
    }
    dice = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, part in TARGETS.items():
            taken, given = shapes[name]
            prefix = f"base_model.model.model.layers.{layer}.{part}.{name}"
            first = torch.randn(RANK, taken, generator=dice) / taken**0.5
            second = torch.randn(given, RANK, generator=dice) * size / RANK**0.5
            tensors[f"{prefix}.lora_A.weight"] = first
            tensors[f"{prefix}.lora_B.weight"] = second
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": list(TARGETS),
        "bias": "none",
        "lora_dropout": 0.0,
    }
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return folder
