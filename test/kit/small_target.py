"""A small random Llama-like target on disk, and a training recipe for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from sglang_spec.models import tiny_pair

HIDDEN, LAYERS, VOCABULARY = 64, 6, 320

RECIPE = """
about = "A draft of a small random target."
[target]
path = "{target}"
dtype = "float32"
[prompts]
packages = ["click==*"]
documents = 12
functions = 6
completions = 6
topics = 8
arithmetic = 8
held_out = "{held_out}"
[answers]
rows = 16
new_tokens = 24
longest_prompt = 2000
temperatures = [0.0, 0.8]
self_written = 6
self_tokens = 16
[draft]
layers = [1, 2, 4]
vocabulary = 256
heads = 8
kv_heads = 8
head_dim = 16
intermediate = 96
[fit]
seeds = [0]
steps = 30
unroll = 3
learning_rate = 3e-3
warmup = 5
batch_tokens = 512
loop_tokens = 1000
evaluate_every = 10
save_every = 10
[export]
fingerprint_prompts = 2
"""


def config(**changes: Any) -> dict[str, Any]:
    """`config.json`; the eight KV heads of drafts are not its own."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "float32",
        **changes,
    }


def write(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Random weights; what token comes next is mostly, not only, a matter of the last one."""
    about = config(**changes)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(about))
    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 0.5) -> torch.Tensor:
        return torch.randn(rows, columns, generator=draw) * gain * columns**-0.5

    heads, kv = about["num_attention_heads"] * 16, about["num_key_value_heads"] * 16
    state = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=draw),
        "model.norm.weight": 1 + 0.1 * torch.randn(HIDDEN, generator=draw),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN, 4.0),
    }
    for index in range(LAYERS):
        start = f"model.layers.{index}."
        state |= {
            start + "input_layernorm.weight": 1 + 0.1 * torch.randn(HIDDEN, generator=draw),
            start + "post_attention_layernorm.weight": torch.ones(HIDDEN),
            start + "self_attn.q_proj.weight": matrix(heads, HIDDEN, 1.0),
            start + "self_attn.k_proj.weight": matrix(kv, HIDDEN, 1.0),
            start + "self_attn.v_proj.weight": matrix(kv, HIDDEN),
            start + "self_attn.o_proj.weight": matrix(HIDDEN, heads),
            start + "mlp.gate_proj.weight": matrix(96, HIDDEN),
            start + "mlp.up_proj.weight": matrix(96, HIDDEN),
            start + "mlp.down_proj.weight": matrix(HIDDEN, 96),
        }
        if about["model_type"] == "qwen3":
            for name in "qk":
                norm = 1 + 0.2 * torch.randn(16, generator=draw)
                state[start + f"self_attn.{name}_norm.weight"] = norm
        if about["model_type"] == "qwen2":
            for name, rows in (("q", heads), ("k", kv), ("v", kv)):
                state[start + f"self_attn.{name}_proj.bias"] = torch.randn(rows, generator=draw)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    for file in tiny_pair().target.glob("*token*"):
        shutil.copy(file, folder)
    for file in tiny_pair().target.glob("chat_template*"):
        shutil.copy(file, folder)
    return folder


def recipe(folder: Path, target: Path, held_out: Path, changes: str = "") -> Path:
    """The recipe's file in `folder`."""
    path = folder / "small.toml"
    path.write_text(RECIPE.format(target=target, held_out=held_out) + changes)
    return path
