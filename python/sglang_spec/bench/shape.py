"""What is served: a pair of checkpoints, and the flags that go with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..models import Pair, embedded_pair, tiny_pair
from ..models.tiny.plan import BOS, SPECIALS, VOCABULARY

_LLAMA = {
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


@dataclass(frozen=True)
class Shape:
    """`tokens` are the ids that prompts are drawn from, the last excluded; `first` opens a text."""

    name: str
    pair: Callable[[], Pair]
    tokens: tuple[int, int]
    first: int = 1
    arguments: tuple[str, ...] = ()
    spec_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


_SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}


def llama_8b() -> Pair:
    """Configs of a Llama-3.1-8B and of an EAGLE3 draft for it, without weights."""
    return _weightless(Path("build/llama-8b-shape"), _LLAMA, 32, 32000)


def small() -> Pair:
    """The same on a scale that a CPU can serve."""
    return _weightless(Path("build/small-shape"), {**_LLAMA, **_SMALL}, 8, 1024)


def _weightless(folder: Path, config: Mapping[str, Any], layers: int, draft_vocab: int) -> Pair:
    _write(
        folder / "target",
        {**config, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers},
    )
    _write(
        folder / "draft",
        {
            **config,
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "draft_vocab_size": draft_vocab,
            "eagle_config": {
                "eagle_aux_hidden_state_layer_ids": [1, layers // 2 - 1, layers - 4],
                "use_aux_hidden_state": True,
            },
        },
    )
    return Pair(folder / "target", folder / "draft")


def _write(folder: Path, config: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def shapes(accept_length: float) -> dict[str, Shape]:
    """All there are; `accept_length` is what those without weights are made to accept."""
    weightless = (
        ("--load-format", "dummy", "--skip-tokenizer-init"),
        ("--speculative-draft-load-format", "dummy"),
        {"SGLANG_SIMULATE_ACC_LEN": str(accept_length)},
    )
    return {
        shape.name: shape
        for shape in (
            Shape("llama-8b", llama_8b, (1000, 100_000), 1, *weightless),
            Shape("small", small, (1000, 4000), 1, *weightless),
            Shape("embedded", embedded_pair, (1000, 40_000)),
            Shape("tiny", tiny_pair, (SPECIALS, VOCABULARY), BOS),
        )
    }
