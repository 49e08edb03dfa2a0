"""Facts about published EAGLE3 drafts and their targets: sizes, ids, names of tensors. No weights.

Not all of it is a recorded fact. Read in published configs: the drafts that SpecForge's `configs/`
name. Read in model cards: what those say, among it the class, the hidden size and the vocabulary of
the Kimi MLA drafts (163,840 rows; 32,000 and `d2t` where one was cut). From memory, unchecked: the
Llama-3.1 and Qwen3-8B drafts and some target sizes (yarn factor, context lengths), and the ranks
and the inner size of the Kimi MLA drafts. Put together, not published: the layer ids of the Kimi
MLA rows, which are SpecForge's. Check a row before quoting it.
`loops` is where upstream 0.5.23 captures them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kit.hollow import Shapes, llama_shapes, mla_shapes

IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Known:
    name: str
    target: Mapping[str, Any]
    draft: Mapping[str, Any]
    shapes: Shapes
    loops: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    warns: tuple[str, ...] = ()


def _target(
    architecture: str, layers: int, hidden: int, vocab: int, length: int, **more: Any
) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "vocab_size": vocab,
        "max_position_embeddings": length,
        **more,
    }


def _wrapped(architecture: str, text: dict[str, Any]) -> dict[str, Any]:
    return {"architectures": [architecture], "text_config": text}


def _draft(
    hidden: int, heads: int, kv: int, head: int, inner: int, vocab: int, length: int, **more: Any
) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "vocab_size": vocab,
        "draft_vocab_size": 32000,
        "max_position_embeddings": length,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        **more,
    }


def _ids(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {IDS: list(ids), "use_aux_hidden_state": True}}


YARN = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096}
KIMI = _wrapped(
    "KimiK25ForConditionalGeneration",
    _target(
        "DeepseekV3ForCausalLM",
        61,
        7168,
        163840,
        262144,
        rope_scaling=YARN,
        quantization_config={"quant_method": "compressed-tensors"},
    ),
)
MLA = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "kimi_k2",
    "hidden_size": 7168,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "num_hidden_layers": 1,
    "vocab_size": 163840,
    "draft_vocab_size": 163840,
    "max_position_embeddings": 262144,
    "rope_theta": 50000.0,
    "rope_scaling": YARN,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "n_routed_experts": 384,
}
GPT_OSS = _target("GptOssForCausalLM", 36, 2880, 201088, 131072)
QWEN3_VL_ROPE = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [24, 20, 20]}

KNOWN = (
    Known(
        "Kimi-K2.5, Llama-style draft",
        KIMI,
        _draft(7168, 64, 64, 128, 18432, 163840, 131072, **_ids(2, 30, 58)),
        llama_shapes(7168, 64, 64, 128, 18432, 32000),
        (2, 30, 58),
        {"tp_size": 8, "context_length": 131072},
        ("ids-ambiguous",),
    ),
    Known(
        "Kimi-K2.5, MLA draft with the whole vocabulary",
        KIMI,
        MLA | _ids(2, 30, 58),
        mla_shapes(7168, 64, 1536, 512, 18432, 163840, d2t=False),
        (2, 30, 58),
        {"tp_size": 8},
        ("ids-ambiguous",),
    ),
    Known(
        "Kimi-K2.5 in NVFP4, MLA draft with plain weights and the default layers",
        KIMI,
        MLA,
        mla_shapes(7168, 64, 1536, 512, 18432, 163840, d2t=False),
        (2, 30, 58),
        {"tp_size": 8, "quantization": "modelopt_fp4"},
    ),
    Known(
        "DeepSeek-R1, ids written as layers",
        _target("DeepseekV3ForCausalLM", 61, 7168, 129280, 163840),
        _draft(7168, 32, 8, 224, 29568, 129280, 32768, **_ids(1, 29, 57)),
        llama_shapes(7168, 32, 8, 224, 29568, 32000),
        (2, 30, 58),
        {"tp_size": 8, "context_length": 32768},
    ),
    Known(
        "Llama-3.1-8B, no eagle_config, 2,048 positions",
        _target("LlamaForCausalLM", 32, 4096, 128256, 131072),
        _draft(4096, 32, 8, 128, 14336, 128256, 2048),
        llama_shapes(4096, 32, 8, 128, 14336, 32000),
        (2, 16, 29),
        {"allow_longer_context": True},
    ),
    Known(
        "Llama-4 Scout, wrapper",
        _wrapped(
            "Llama4ForConditionalGeneration",
            _target("Llama4ForCausalLM", 48, 5120, 202048, 10485760),
        ),
        _draft(5120, 40, 8, 128, 32768, 202048, 4096),
        llama_shapes(5120, 40, 8, 128, 32768, 32000),
        (2, 24, 45),
        {"tp_size": 8, "context_length": 4096},
    ),
    Known(
        "Qwen3-8B",
        _target("Qwen3ForCausalLM", 36, 4096, 151936, 40960),
        _draft(4096, 32, 8, 128, 12288, 151936, 40960),
        llama_shapes(4096, 32, 8, 128, 12288, 32000),
        (2, 18, 33),
        {"tp_size": 2},
    ),
    Known(
        "Qwen3-235B-A22B, layers named",
        _target("Qwen3MoeForCausalLM", 94, 4096, 151936, 40960),
        _draft(4096, 64, 4, 128, 24576, 151936, 40960, **_ids(1, 46, 90)),
        llama_shapes(4096, 64, 4, 128, 24576, 32000),
        (2, 47, 91),
        {"tp_size": 8},
    ),
    Known(
        "Qwen3-30B-A3B, EAGLE 3.1: a norm for each slot",
        _target("Qwen3MoeForCausalLM", 48, 2048, 151936, 40960),
        _draft(2048, 32, 4, 128, 12288, 151936, 2048, fc_norm=True, norm_output=True),
        llama_shapes(
            2048, 32, 4, 128, 12288, 32000, norms=[f"fc_norm.{n}.weight" for n in range(3)]
        ),
        (2, 24, 45),
        {"context_length": 2048},
    ),
    Known(
        "Qwen3-VL-30B-A3B, rotary positions on three axes",
        _wrapped(
            "Qwen3VLMoeForConditionalGeneration",
            _target("Qwen3MoeForCausalLM", 48, 2048, 151936, 262144, rope_scaling=QWEN3_VL_ROPE),
        ),
        _draft(
            2048, 32, 4, 128, 6144, 151936, 262144,
            rope_scaling={"mrope_interleaved": True, "mrope_section": [24, 20, 20]},
        ),
        llama_shapes(2048, 32, 4, 128, 6144, 32000),
        (2, 24, 45),
    ),
    Known(
        "gpt-oss-120b v3, ids up to the boundary after the last layer",
        GPT_OSS,
        _draft(2880, 64, 8, 64, 17280, 201088, 131072, **_ids(24, 30, 36)),
        llama_shapes(2880, 64, 8, 64, 17280, 32000),
        (24, 30, 36),
    ),
    Known(
        "gpt-oss-120b long context, ids at top level, whole vocabulary",
        GPT_OSS,
        _draft(
            2880, 64, 8, 64, 17280, 201088, 131072, draft_vocab_size=201088, **{IDS: [1, 17, 32]}
        ),
        llama_shapes(2880, 64, 8, 64, 17280, 201088, d2t=False),
        (2, 18, 33),
    ),
    Known(
        "Gemma 4 26B, the last layer's output, whole vocabulary",
        _wrapped(
            "Gemma4ForConditionalGeneration",
            _target("Gemma4ForCausalLM", 30, 2816, 262144, 262144),
        ),
        _draft(
            2816, 32, 8, 128, 2112, 262144, 4096, draft_vocab_size=262144,
            eagle_config={IDS: [5, 17, 29]},
        ),
        llama_shapes(2816, 32, 8, 128, 2112, 262144, d2t=False),
        (6, 18, 30),
        {"context_length": 4096},
    ),
    Known(
        "LongCat-Flash, whole vocabulary, layers counted by num_layers",
        {
            "architectures": ["LongcatFlashForCausalLM"],
            "num_layers": 28,
            "hidden_size": 6144,
            "vocab_size": 131072,
            "max_position_embeddings": 131072,
        },
        _draft(6144, 64, 16, 128, 12288, 131072, 131072, draft_vocab_size=131072),
        llama_shapes(6144, 64, 16, 128, 12288, 131072, d2t=False),
        (2, 14, 25),
        {"tp_size": 8},
    ),
    Known(
        "Kimi-K2.7-Code, MLA draft cut to the 32,000 most frequent tokens",
        KIMI,
        MLA | {"draft_vocab_size": 32000},
        mla_shapes(7168, 64, 1536, 512, 18432, 32000, d2t=True),
        (2, 30, 58),
        {"tp_size": 8},
    ),
)  # fmt: skip
