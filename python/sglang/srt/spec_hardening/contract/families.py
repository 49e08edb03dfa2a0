"""How each target family reads the list of layer ids, by architecture.

A target captures a state where its layer loop is about to run layer `i` (the loop index): that is
the output of layer `i - 1`, and the embedding for `i = 0`. What a list of *ids* means is decided by
the family's own `set_eagle3_layers_to_capture`, and the families differ:

    OUTPUT    id is the layer whose output is taken: loop index = id + 1
    FIRST_ID  as OUTPUT if the first id is 1, else every id already is a loop index
    BOUNDARY  as OUTPUT, unless the largest id equals the number of layers: then loop indices

Without a list every family takes loop indices [2, n // 2, n - 3]; one adds 1 to those too. The
boundary after the last layer (loop index n) is captured by some families only; the others never
reach it and hand over one state too few.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Convention(Enum):
    OUTPUT = "each id is the layer whose output is taken"
    FIRST_ID = "ids are layers if the first id is 1, else loop indices"
    BOUNDARY = "ids are loop indices if the largest equals the number of layers, else layers"


@dataclass(frozen=True)
class Family:
    """One implementation of `set_eagle3_layers_to_capture`, named by its source file."""

    source: str
    convention: Convention = Convention.OUTPUT
    default_shift: int = 0
    last_layer: bool = False

    def reads_as_layers(self, ids: tuple[int, ...], layers: int) -> bool:
        """Whether this list means layers (True) or loop indices (False)."""
        if self.convention is Convention.FIRST_ID:
            return ids[:1] == (1,)
        if self.convention is Convention.BOUNDARY:
            return max(ids, default=0) != layers
        return True

    def loop_indices(self, ids: tuple[int, ...] | None, layers: int) -> tuple[int, ...]:
        """Where `ids` (None: the default) are captured in a target of `layers` layers."""
        if ids is None:
            default = (2, layers // 2, layers - 3)
            return tuple(index + self.default_shift for index in default)
        shift = 1 if self.reads_as_layers(ids, layers) else 0
        return tuple(index + shift for index in ids)


LLAMA = Family("llama.py")
DEEPSEEK = Family("deepseek_v2.py", Convention.FIRST_ID)
GEMMA3 = Family("gemma3_causal.py", last_layer=True)
GEMMA4 = Family("gemma4_causal.py", last_layer=True)
GEMMA4_MM = Family("gemma4_mm.py", last_layer=True)
BAILING = Family("bailing_moe.py")
EXAONE = Family("exaone_moe.py")
QWEN3_5 = Family("qwen3_5_text.py")
QWEN3_MOE = Family("qwen3_moe.py")
QWEN3_VL = Family("qwen3_vl.py")
GLM4_MOE_LITE = Family("glm4_moe_lite.py", Convention.FIRST_ID)

# Wrappers (kimi_k25, mllama4, gemma3_mm) hand the list on to the family named in their row.
FAMILIES: dict[str, Family] = {
    "ApertusForCausalLM": Family("apertus.py"),
    "BailingMoEForCausalLM": BAILING,
    "BailingMoeForCausalLM": BAILING,
    "BailingMoeV2ForCausalLM": BAILING,
    "Cosmos3ForConditionalGeneration": QWEN3_VL,
    "DeepseekV2ForCausalLM": DEEPSEEK,
    "DeepseekV32ForCausalLM": DEEPSEEK,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "ExaoneMoEForCausalLM": EXAONE,
    "ExaoneMoeForCausalLM": EXAONE,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3,
    "Gemma4ForCausalLM": GEMMA4,
    "Gemma4ForConditionalGeneration": GEMMA4_MM,
    "Gemma4UnifiedForConditionalGeneration": GEMMA4_MM,
    "Glm4MoeForCausalLM": Family("glm4_moe.py"),
    "Glm4MoeLiteForCausalLM": GLM4_MOE_LITE,
    "Glm5NextForConditionalGeneration": Family("glm5_next.py"),
    "GlmMoeDsaForCausalLM": DEEPSEEK,
    "GptOssForCausalLM": Family("gpt_oss.py", Convention.BOUNDARY, last_layer=True),
    "IQuestCoderForCausalLM": LLAMA,
    "InternLM3ForCausalLM": LLAMA,
    "InternS1ProForConditionalGeneration": QWEN3_VL,
    "InternS2MobiusForConditionalGeneration": QWEN3_VL,
    "InternS2PreviewForConditionalGeneration": QWEN3_VL,
    "KimiK25ForConditionalGeneration": DEEPSEEK,
    "Llama4ForCausalLM": LLAMA,
    "Llama4ForConditionalGeneration": LLAMA,
    "LlamaForCausalLM": LLAMA,
    "LongcatFlashForCausalLM": Family("longcat_flash.py"),
    "MellumForCausalLM": QWEN3_MOE,
    "MiniMaxM2ForCausalLM": Family("minimax_m2.py"),
    "MiniMaxM3SparseForCausalLM": Family("minimax_m3.py", last_layer=True),
    "MiniMaxM3SparseForConditionalGeneration": Family(
        "minimax_m3_vl.py", default_shift=1, last_layer=True
    ),
    "Ministral3ForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "MistralLarge3ForCausalLM": DEEPSEEK,
    "Phi3ForCausalLM": LLAMA,
    "Qwen2ForCausalLM": Family("qwen2.py"),
    "Qwen2MoeForCausalLM": Family("qwen2_moe.py"),
    "Qwen2_5_VLForConditionalGeneration": Family("qwen2_5_vl.py"),
    "Qwen3ForCausalLM": Family("qwen3.py"),
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3NextForCausalLM": Family("qwen3_next.py"),
    "Qwen3VLForConditionalGeneration": QWEN3_VL,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_VL,
    "Qwen3_5ForCausalLM": QWEN3_5,
    "Qwen3_5ForConditionalGeneration": QWEN3_VL,
    "Qwen3_5MoeForCausalLM": QWEN3_5,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_VL,
    "Qwen4ExpForConditionalGeneration": QWEN3_VL,
    "SarvamMoEForCausalLM": BAILING,
    "TeleFLMForCausalLM": LLAMA,
}

# Classes that inherit the method and are never a target of EAGLE3: drafts, heads that predict
# several tokens, an embedding model, and a bridge whose models live outside this tree.
NOT_TARGETS = frozenset(
    {
        "DeepseekV3ForCausalLMNextN",
        "EmbeddingGemmaModel",
        "ExaoneMoEForCausalLMMTP",
        "Gemma4AssistantForCausalLM",
        "Gemma4UnifiedAssistantForCausalLM",
        "Glm4MoeForCausalLMNextN",
        "Glm4MoeLiteForCausalLMNextN",
        "Glm5NextForConditionalGenerationNextN",
        "GlmMoeDsaForCausalLMNextN",
        "LlamaForCausalLMEagle",
        "LlamaForCausalLMEagle3",
        "LongcatFlashForCausalLMNextN",
        "MindSporeForCausalLM",
        "MistralForCausalLMEagle",
        "MistralLarge3ForCausalLMEagle",
        "Qwen2ForCausalLMEagle",
        "Qwen3MoeForCausalLMMTP",
        "Qwen3NextForCausalLMMTP",
    }
)

EAGLE3_DRAFTS = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")
