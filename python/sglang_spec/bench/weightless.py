"""Configs of pairs that are served without weights (`--load-format dummy`), and what these weigh.

What ranks share out divides by 8, but for the KV heads of `small`, of which ranks hold copies. A
draft is one layer as wide as its target.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import Pair
from ..models.deepseek import PLANS
from ..models.deepseek.config import target as deepseek_target

_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA_70B = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64}
_SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}
# The sizes of Kimi-K2.5's language model; of its layers as many as are asked for.
_KIMI: dict[str, Any] = {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "vocab_size": 163840,
}
_PACKED = 0.5 + 2 / 32  # bytes of an INT4 weight with its share of a bfloat16 scale


@dataclass(frozen=True)
class Weightless:
    """The configs of a pair; `folder` is where they are written."""

    folder: Path
    target: Mapping[str, Any]
    draft: Mapping[str, Any]

    def pair(self) -> Pair:
        """The pair on disk."""
        for name, config in (("target", self.target), ("draft", self.draft)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            text = json.dumps(config, indent=1) + "\n"
            (self.folder / name / "config.json").write_text(text)
        return Pair(self.folder / "target", self.folder / "draft")

    def gigabytes(self, ranks: int) -> float:
        """Of the weights of both on each of `ranks`; what every rank holds whole is little."""
        return (_bytes(self.target) + _bytes(self.draft)) / ranks / 1e9


def llama(name: str, layers: int, draft_vocab: int, **sizes: Any) -> Weightless:
    """A Llama with an EAGLE3 draft."""
    config = {**_LLAMA, **sizes}
    target = {**config, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers}
    ids = [1, layers // 2 - 1, layers - 4]
    return Weightless(Path(f"build/{name}-shape"), target, _draft(config, draft_vocab, ids))


def llama_8b() -> Weightless:
    return llama("llama-8b", 32, 32000)


def llama_70b() -> Weightless:
    return llama("llama-70b", 80, 32000, **_LLAMA_70B)


def small() -> Weightless:
    """On a scale that a CPU can serve."""
    return llama("small", 8, 1024, **_SMALL)


def kimi(name: str, layers: int, draft_vocab: int = 32000, **sizes: Any) -> Weightless:
    """Kimi-K2.5's classes: latent attention, INT4 experts, the multimodal wrapper without images.

    Everything that `sizes` does not name is as in the tiny Kimi (`models/deepseek`), whose heads,
    latent and groups are those of the real one. Its draft is of the Llama kind.
    """
    target = copy.deepcopy(deepseek_target(PLANS["kimi"]))
    text = target["text_config"]
    text |= {"num_hidden_layers": layers, **sizes}
    target["vision_config"]["text_hidden_size"] = text["hidden_size"]
    same = ("hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings")
    heads = {"num_attention_heads": text["num_attention_heads"], "num_key_value_heads": 8}
    config = {**_LLAMA, **{key: text[key] for key in same}, **heads}
    # A list that begins with 1 names layers, not loop indices (docs/contract.md).
    ids = [1, layers // 2 - 1, layers - 2]
    return Weightless(Path(f"build/{name}-shape"), target, _draft(config, draft_vocab, ids))


def kimi_cut() -> Weightless:
    """20 of the 61 layers: two GPUs of 141 GB hold them."""
    return kimi("kimi-cut", 20, **_KIMI)


def kimi_small() -> Weightless:
    """The same classes on a scale that a test can serve."""
    return kimi("kimi-small", 6, 256)


def _draft(config: Mapping[str, Any], vocabulary: int, ids: list[int]) -> dict[str, Any]:
    return {
        **config,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": vocabulary,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": ids,
            "use_aux_hidden_state": True,
        },
    }


def _bytes(config: Mapping[str, Any]) -> float:
    """Of all matrices; norms and the tiny vision tower are left out."""
    text = config.get("text_config", config)
    hidden, layers = text["hidden_size"], text["num_hidden_layers"]
    draft = "draft_vocab_size" in config
    head = text["draft_vocab_size"] if draft else text["vocab_size"]
    table = 0 if draft else text["vocab_size"]  # a draft takes its target's embedding
    plain = (head + table) * hidden + (3 * hidden * hidden if draft else 0)
    width = 2 * hidden if draft else hidden
    attention = _latent(text) if "kv_lora_rank" in text else _heads(text, width)
    if "n_routed_experts" not in text:
        return float(2 * (plain + layers * (attention + 3 * hidden * text["intermediate_size"])))
    dense = text["first_k_dense_replace"]
    one = 3 * hidden * text["moe_intermediate_size"]
    plain += layers * attention + dense * 3 * hidden * text["intermediate_size"]
    plain += (layers - dense) * (text["n_shared_experts"] * one + hidden * text["n_routed_experts"])
    return float(2 * plain + _PACKED * (layers - dense) * text["n_routed_experts"] * one)


def _heads(text: Mapping[str, Any], width: int) -> int:
    """`width` is that of what goes in: a draft's first layer has embedding and state beside."""
    head = text["head_dim"]
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    return int(width * (queries + 2 * keys) + queries * text["hidden_size"])


def _latent(text: Mapping[str, Any]) -> int:
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    query, latent = text["q_lora_rank"], text["kv_lora_rank"]
    nope, rope, value = text["qk_nope_head_dim"], text["qk_rope_head_dim"], text["v_head_dim"]
    return int(
        hidden * (query + latent + rope)
        + query * heads * (nope + rope)
        + latent * heads * (nope + value)
        + heads * value * hidden
    )
