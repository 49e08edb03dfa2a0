"""The two drafts in use for these targets, in bfloat16: one with latent attention, one as Llama.

`fc` is the mean of its slots, so the draft's state points where the captured ones do, and its head
answers the successor's successor. Both read the same layers, each by the other meaning of the ids
(see `sglang-spec contract`): the MLA draft names loop indices, the Llama draft names layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_spec.models.deepseek import text
from sglang_spec.models.deepseek.config import attention
from sglang_spec.models.deepseek.plan import (
    DENSE_INNER,
    DRAFTS,
    HIDDEN,
    LOOPS,
    POSITIONS,
    STRETCH,
    Plan,
)
from sglang_spec.models.tiny.plan import BOS, EOS, SPECIALS, VOCABULARY

if TYPE_CHECKING:
    import torch

LLAMA_HEADS, LLAMA_KV_HEADS, LLAMA_HEAD = 8, 8, 64


def config(style: str) -> dict[str, Any]:
    """`config.json` of a draft; `style` is one of `DRAFTS`."""
    mla = style == "mla"
    ids = LOOPS if mla else tuple(loop - 1 for loop in LOOPS)
    return {
        "architectures": ["Eagle3DeepseekV2ForCausalLM" if mla else "LlamaForCausalLMEagle3"],
        "hidden_size": HIDDEN,
        "intermediate_size": DENSE_INNER,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": VOCABULARY if mla else VOCABULARY - SPECIALS,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(ids),
            "use_aux_hidden_state": True,
        },
        **(_mla() if mla else _llama()),
    }


def _mla() -> dict[str, Any]:
    # Upstream's cache asks any config of this type how many experts and predictors it has.
    return {"model_type": "kimi_k2", "num_nextn_predict_layers": 0, **attention()}


def _llama() -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_attention_heads": LLAMA_HEADS,
        "num_key_value_heads": LLAMA_KV_HEADS,
        "head_dim": LLAMA_HEAD,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": POSITIONS * STRETCH,
        "rope_theta": 50000.0,
        "rope_scaling": None,
    }


def weights(style: str, plan: Plan, target: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All tensors of the draft, `target` being those of the language model."""
    import torch

    dice = torch.Generator().manual_seed(1000 + plan.seed + DRAFTS.index(style))
    embedding = target["model.embed_tokens.weight"].float()
    twice = tuple(plan.successors[follower] for follower in plan.successors)
    head = text.head(embedding, twice)
    found = {
        "fc.weight": torch.eye(HIDDEN).repeat(1, len(LOOPS)) / len(LOOPS),
        "norm.weight": torch.ones(HIDDEN),
        "layers.0.input_layernorm.weight": torch.ones(HIDDEN),
        "layers.0.hidden_norm.weight": torch.ones(HIDDEN),
        "layers.0.post_attention_layernorm.weight": torch.ones(HIDDEN),
        **text.mlp("layers.0.mlp.", HIDDEN, DENSE_INNER, 0.4, dice),
    }
    if style == "mla":
        found |= text.mla("layers.0.self_attn.", 2 * HIDDEN, dice)
        found["lm_head.weight"] = head
    else:
        found |= _llama_attention(dice)
        found["lm_head.weight"] = head[SPECIALS:]
    made = {name: tensor.to(torch.bfloat16) for name, tensor in found.items()}
    if style == "llama":
        made["d2t"] = torch.full((VOCABULARY - SPECIALS,), SPECIALS, dtype=torch.int64)
        made["t2d"] = torch.arange(VOCABULARY) >= SPECIALS
    return made


def _llama_attention(dice: torch.Generator) -> dict[str, torch.Tensor]:
    start, wide = "layers.0.self_attn.", 2 * HIDDEN
    queries, keys = LLAMA_HEADS * LLAMA_HEAD, LLAMA_KV_HEADS * LLAMA_HEAD
    return {
        f"{start}q_proj.weight": text.spread(queries, wide, 1.0, dice),
        f"{start}k_proj.weight": text.spread(keys, wide, 1.0, dice),
        f"{start}v_proj.weight": text.spread(keys, wide, 1.0, dice),
        f"{start}o_proj.weight": text.spread(HIDDEN, queries, 0.5, dice),
    }
