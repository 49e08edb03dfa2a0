"""Checks of one config against the other: hidden size, vocabulary, heads, rope, context length."""

from __future__ import annotations

from typing import Any

from .checkpoint import Checkpoint
from .report import Findings
from .settings import Settings

_LENGTH_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
_ROPE_TYPES = (
    "default",
    "linear",
    "dynamic",
    "yarn",
    "deepseek_yarn",
    "llama3",
    "longrope",
    "proportional",
)


def check_hidden(draft: Checkpoint, target: Checkpoint, findings: Findings) -> None:
    """The width of the states the draft takes is the target's."""
    hidden = target.integer("hidden_size")
    key = "target_hidden_size" if draft.integer("target_hidden_size") else "hidden_size"
    taken = draft.integer(key)
    if hidden is not None and taken != hidden:
        findings.refuse(
            "hidden-size",
            draft.config_file,
            draft.prefix + key,
            taken,
            f"the target's states have {hidden} elements ({target.config_file}); this draft was "
            f"made for another target, or lacks target_hidden_size {hidden}",
        )


def check_vocabulary(draft: Checkpoint, target: Checkpoint, findings: Findings) -> None:
    """Both speak of the same tokens, and the draft's reduced vocabulary is a part of them."""
    vocab, theirs = draft.integer("vocab_size"), target.integer("vocab_size")
    if vocab != theirs:
        findings.refuse(
            "vocab-size",
            draft.config_file,
            draft.prefix + "vocab_size",
            vocab,
            f"the target has {theirs} tokens ({target.config_file}) and the draft takes its "
            "embedding; use a draft trained for this target",
        )
    key = draft.prefix + "draft_vocab_size"
    reduced = draft.text.get("draft_vocab_size")
    if reduced is None:
        if "draft_vocab_size" not in draft.text and draft.architecture == "LlamaForCausalLMEagle3":
            findings.refuse(
                "draft-vocab-size",
                draft.config_file,
                key,
                None,
                "this class needs the key: write the number of rows of lm_head, or null to take "
                "the target's head",
            )
        return
    if not isinstance(reduced, int) or reduced < 1 or (vocab is not None and reduced > vocab):
        findings.refuse(
            "draft-vocab-size",
            draft.config_file,
            key,
            reduced,
            f"write the number of rows of the draft's lm_head, at most {vocab}",
        )
    elif draft.text.get("tie_word_embeddings") and reduced != vocab:
        findings.refuse(
            "draft-vocab-size",
            draft.config_file,
            key,
            reduced,
            "tie_word_embeddings takes the whole embedding as head, which a reduced vocabulary "
            "does not fit; write tie_word_embeddings false",
        )


def check_heads(draft: Checkpoint, settings: Settings, findings: Findings) -> None:
    """Every rank gets whole heads. On the CPU upstream widens a model that does not divide."""
    tp = settings.tp_size
    heads = draft.integer("num_attention_heads") or 0
    kv_heads = draft.integer("num_key_value_heads") or heads
    inner = draft.integer("intermediate_size")
    if settings.device == "cpu" or tp == 1:
        return
    mla = draft.integer("kv_lora_rank") is not None
    if heads % tp:
        _refuse_heads("num_attention_heads", heads, tp, draft, findings)
    if not mla and kv_heads % tp and tp % kv_heads:
        _refuse_heads("num_key_value_heads", kv_heads, tp, draft, findings)
    if inner is not None and inner % tp:
        _refuse_heads("intermediate_size", inner, tp, draft, findings)


def _refuse_heads(key: str, value: int, tp: int, draft: Checkpoint, findings: Findings) -> None:
    findings.refuse(
        "heads-tp",
        draft.config_file,
        draft.prefix + key,
        value,
        f"it does not divide over --tp-size {tp}; choose a tensor parallel size that divides it",
    )


def check_rope(draft: Checkpoint, target: Checkpoint, findings: Findings) -> None:
    """A rotary embedding upstream can build, and of the kind whose positions the target has."""
    key, scaling = rope(draft)
    theta = draft.text.get("rope_theta", scaling.get("rope_theta", 10000.0))
    if isinstance(theta, bool) or not isinstance(theta, (int, float)) or theta <= 0:
        findings.refuse(
            "rope",
            draft.config_file,
            draft.prefix + "rope_theta",
            theta,
            "write the base the draft was trained with, a positive number",
        )
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    multimodal = "mrope_section" in scaling
    if not multimodal and kind not in _ROPE_TYPES:
        findings.refuse(
            "rope", draft.config_file, key, kind, f"write one of {', '.join(_ROPE_TYPES)}"
        )
    factor = scaling.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or factor <= 0:
        findings.refuse(
            "rope", draft.config_file, f"{key}.factor", factor, "write a positive number"
        )
    if multimodal and "mrope_section" not in rope(target)[1]:
        findings.refuse(
            "rope",
            draft.config_file,
            f"{key}.mrope_section",
            scaling["mrope_section"],
            "the target's positions have one axis, the draft asks for three; remove mrope_section",
        )


def rope(checkpoint: Checkpoint) -> tuple[str, dict[str, Any]]:
    """The key and the rope parameters under it, {} where the config has none."""
    for key in ("rope_parameters", "rope_scaling"):
        value = checkpoint.text.get(key)
        if isinstance(value, dict):
            return checkpoint.prefix + key, value
    return checkpoint.prefix + "rope_scaling", {}


def context_length(checkpoint: Checkpoint) -> int:
    """The longest context of a model by its config, as upstream derives it."""
    scaling = rope(checkpoint)[1]
    factor = scaling.get("factor", 1)
    if "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3":
        factor = 1
    length = checkpoint.integer(*_LENGTH_KEYS) or 2048
    return int(factor * length) if isinstance(factor, (int, float)) else length


def check_context(
    draft: Checkpoint, target: Checkpoint, settings: Settings, findings: Findings
) -> None:
    """The draft reaches as far as the server serves, unless the operator said otherwise."""
    served = settings.context_length or context_length(target)
    reach = context_length(draft)
    if served <= reach:
        return
    if settings.allow_longer_context:
        findings.note(
            f"the draft's config reaches {reach} tokens, the server serves {served}; "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN lets the draft run beyond"
        )
        return
    findings.refuse(
        "context-length",
        draft.config_file,
        draft.prefix + "max_position_embeddings",
        reach,
        f"the server serves {served} tokens: start it with --context-length {reach}, or, if the "
        "draft may extrapolate, with SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    )
