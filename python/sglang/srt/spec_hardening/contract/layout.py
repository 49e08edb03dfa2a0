"""The parameters a draft class has, by architecture and config: names, shapes, kinds.

Names are written as upstream's modules name them; `checkpoint_name` maps what a checkpoint may call
them. Shapes are those of the whole tensor, before any split over ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .layer_ids import section

MAX_LAYERS = 1000  # no draft has as many; a number beyond is a slip, and would fill the memory
FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I64", "I32", "I16")


@dataclass(frozen=True)
class Parameter:
    """One parameter: its full shape, and whether the checkpoint may leave it out."""

    shape: tuple[int, ...]
    required: bool = True
    dtypes: tuple[str, ...] = FLOATS


@dataclass(frozen=True)
class Sizes:
    """The sizes a layout is made of.

    Attributes:
        slots: captured states that `fc` takes (0: none is captured and `fc` never runs).
        own_embedding: the draft cannot take the target's embedding, it is of another width.
        draft_vocab: rows of the draft's own head; None where the target's head is taken.
    """

    hidden: int
    target_hidden: int
    slots: int
    vocab: int
    draft_vocab: int | None
    own_embedding: bool


@dataclass(frozen=True)
class Layout:
    """The parameters of a draft, and how names of a checkpoint map to them.

    Attributes:
        legacy: (pattern, replacement) pairs that upstream applies to a tensor's name.
        model_prefix: whether `model.` before a name is understood; else such a tensor is dropped.
    """

    parameters: Mapping[str, Parameter]
    legacy: tuple[tuple[str, str], ...] = ()
    model_prefix: bool = False

    def parameter_name(self, name: str) -> str | None:
        """The parameter that takes the tensor `name`; None for rotary buffers, which none does."""
        if re.search(r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$", name):
            return None
        for vocabulary_map in ("d2t", "t2d"):
            if name == vocabulary_map or name.endswith("." + vocabulary_map):
                return vocabulary_map
        for pattern, new in self.legacy:
            name = re.sub(pattern, new, name)
        if self.model_prefix and name.removeprefix("model.") in self.parameters:
            inner = name.removeprefix("model.")
            return name if inner == "lm_head.weight" else inner
        return name


def whole(
    config: Mapping[str, Any], key: str, default: int | None = None, limit: int = 2**31 - 1
) -> int:
    """The positive integer under `key`; `default` where the key is missing, null or 0.

    Raises:
        KeyError: the key, where it is missing and has no default.
        ValueError: the key and what is wrong with its value.
    """
    value = config[key] if default is None else config.get(key) or default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise ValueError(f"{key} (must be between 1 and {limit})")
    return value


def llama_layout(config: Mapping[str, Any], sizes: Sizes) -> Layout:
    """`LlamaForCausalLMEagle3` (llama_eagle3.py)."""
    hidden = sizes.hidden
    heads = whole(config, "num_attention_heads")
    kv_heads = whole(config, "num_key_value_heads", heads)
    head = whole(config, "head_dim", hidden // heads)
    inner = whole(config, "intermediate_size")
    found = _shared(config, sizes)
    if section(config).get("norm_before_fc", config.get("norm_before_fc")):
        found["input_norm.weight"] = Parameter((sizes.target_hidden * sizes.slots,))
    for layer in range(whole(config, "num_hidden_layers", 1, MAX_LAYERS)):
        taken = 2 * hidden if layer == 0 else hidden
        found |= {
            f"layers.{layer}.{name}": parameter
            for name, parameter in {
                "self_attn.q_proj.weight": Parameter((heads * head, taken)),
                "self_attn.k_proj.weight": Parameter((kv_heads * head, taken)),
                "self_attn.v_proj.weight": Parameter((kv_heads * head, taken)),
                "self_attn.o_proj.weight": Parameter((hidden, heads * head)),
                **_mlp(hidden, inner),
                # Later layers have the norm of the embedding too, but never run it.
                "input_layernorm.weight": Parameter((hidden,), required=layer == 0),
                "hidden_norm.weight": Parameter((hidden,)),
                "post_attention_layernorm.weight": Parameter((hidden,)),
            }.items()
        }
        if config.get("attention_bias"):
            found[f"layers.{layer}.self_attn.o_proj.bias"] = Parameter((hidden,))
    return Layout(
        found,
        legacy=(
            (r"midlayer", "layers.0"),
            (r"aux_norm_low", "fc_norm.0"),
            (r"aux_norm_mid", "fc_norm.1"),
            (r"aux_norm_high", "fc_norm.2"),
        ),
        model_prefix=True,
    )


def mla_layout(config: Mapping[str, Any], sizes: Sizes) -> Layout:
    """`Eagle3DeepseekV2ForCausalLM` (kimi_k25_eagle3.py). Names with `model.` are not loaded."""
    hidden = sizes.hidden
    heads = whole(config, "num_attention_heads")
    nope, rope = whole(config, "qk_nope_head_dim"), whole(config, "qk_rope_head_dim")
    value, q_rank, kv_rank = (
        whole(config, key) for key in ("v_head_dim", "q_lora_rank", "kv_lora_rank")
    )
    found = _shared(config, sizes) | {
        f"midlayer.{name}": parameter
        for name, parameter in {
            "self_attn.q_a_proj.weight": Parameter((q_rank, 2 * hidden)),
            "self_attn.q_a_layernorm.weight": Parameter((q_rank,)),
            "self_attn.q_b_proj.weight": Parameter((heads * (nope + rope), q_rank)),
            "self_attn.kv_a_proj_with_mqa.weight": Parameter((kv_rank + rope, 2 * hidden)),
            "self_attn.kv_a_layernorm.weight": Parameter((kv_rank,)),
            "self_attn.kv_b_proj.weight": Parameter((heads * (nope + value), kv_rank)),
            "self_attn.o_proj.weight": Parameter((hidden, heads * value)),
            **_mlp(hidden, whole(config, "intermediate_size")),
            "input_layernorm.weight": Parameter((hidden,)),
            "hidden_norm.weight": Parameter((hidden,)),
            "post_attention_layernorm.weight": Parameter((hidden,)),
        }.items()
    }
    return Layout(found, legacy=((r"^layers\.0\.", "midlayer."),))


def _shared(config: Mapping[str, Any], sizes: Sizes) -> dict[str, Parameter]:
    found = {
        "embed_tokens.weight": Parameter((sizes.vocab, sizes.hidden), sizes.own_embedding),
        "norm.weight": Parameter((sizes.hidden,)),
    }
    width = sizes.target_hidden * sizes.slots
    if sizes.slots:
        found["fc.weight"] = Parameter((sizes.hidden, width))
        if config.get("bias"):
            found["fc.bias"] = Parameter((sizes.hidden,))
        if config.get("fc_norm") or config.get("use_aux_norm"):
            found |= {
                f"fc_norm.{slot}.weight": Parameter((sizes.target_hidden,))
                for slot in range(sizes.slots)
            }
    if sizes.draft_vocab is not None:
        found["lm_head.weight"] = Parameter((sizes.draft_vocab, sizes.hidden))
        found["d2t"] = Parameter((sizes.draft_vocab,), sizes.draft_vocab != sizes.vocab, INTEGERS)
        found["t2d"] = Parameter((sizes.vocab,), False, ("BOOL", "U8"))
    return found


def _mlp(hidden: int, inner: int) -> dict[str, Parameter]:
    return {
        "mlp.gate_proj.weight": Parameter((inner, hidden)),
        "mlp.up_proj.weight": Parameter((inner, hidden)),
        "mlp.down_proj.weight": Parameter((hidden, inner)),
    }
