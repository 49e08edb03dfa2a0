"""`config.json` of the targets, with the keys of the published checkpoints."""

from __future__ import annotations

from typing import Any

from sglang_spec.models.deepseek import int4, vision
from sglang_spec.models.deepseek.plan import (
    DENSE_INNER,
    DENSE_LAYERS,
    EXPERT_INNER,
    EXPERTS,
    EXPERTS_PER_TOKEN,
    GROUP,
    HEADS,
    HIDDEN,
    KV_RANK,
    LAYERS,
    MEDIA_TOKEN,
    NOPE,
    POSITIONS,
    Q_RANK,
    ROPE,
    STRETCH,
    VALUE,
    Plan,
)
from sglang_spec.models.tiny.plan import BOS, EOS, VOCABULARY

# Only routed experts are quantised: attention, dense and shared layers and the head stay as they
# are. These are the words of the published checkpoint.
NOT_QUANTIZED = [
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
]


def target(plan: Plan) -> dict[str, Any]:
    """The whole config; Kimi's wraps that of its language model."""
    text = _text(plan)
    if plan.family == "deepseek":
        return text
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "text_config": text,
        "vision_config": vision.config(),
        "media_placeholder_token_id": MEDIA_TOKEN,
        # Its image processor is code that comes with the published checkpoint; without one it is
        # served for text, through the wrapper all the same.
        "language_model_only": True,
        "tie_word_embeddings": False,
        **_tokens(),
    }


def attention() -> dict[str, Any]:
    """The sizes of MLA, and YaRN as Kimi uses it: the same for the target and the MLA draft."""
    return {
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "max_position_embeddings": POSITIONS * STRETCH,
        "rope_theta": 50000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": float(STRETCH),
            "original_max_position_embeddings": POSITIONS,
            "beta_fast": 1.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }


def _text(plan: Plan) -> dict[str, Any]:
    kimi = plan.family == "kimi"
    found = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2" if kimi else "deepseek_v3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "intermediate_size": DENSE_INNER,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5 if kimi else 1e-6,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
        "first_k_dense_replace": DENSE_LAYERS,
        "moe_layer_freq": 1,
        "moe_intermediate_size": EXPERT_INNER,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "n_group": plan.groups,
        "topk_group": min(plan.groups, 2),
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.827 if kimi else 2.5,
        "num_nextn_predict_layers": 0,
        **attention(),
        **_tokens(),
    }
    if plan.experts == "int4":
        found["quantization_config"] = int4.config(GROUP, NOT_QUANTIZED)
    return found


def _tokens() -> dict[str, Any]:
    return {
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": EOS,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
