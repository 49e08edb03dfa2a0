"""Checks of one config against the other: hidden size, vocabulary, heads, rope, context length."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

from .checkpoint import LAYER_KEYS, Checkpoint
from .report import Findings
from .settings import Settings

_LENGTH_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
ROPE_KEYS = ("rope_parameters", "rope_scaling")
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


def is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> TypeGuard[float]:
    """A finite number above zero; JSON as Python reads it knows NaN and Infinity too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def check_target(target: Checkpoint, findings: Findings) -> None:
    """The target's config says what the draft is held against: layers, width, tokens.

    A key that is left out has its class's default, which needs that class; without the number of
    layers no slot can be named.
    """
    for keys in (LAYER_KEYS, ("hidden_size",), ("vocab_size",)):
        held = {key: target.text[key] for key in keys if target.text.get(key) is not None}
        if any(is_whole(value) for value in held.values()):
            continue
        key, value = next(iter(held.items()), (keys[0], None))
        report = findings.refuse if held or keys is LAYER_KEYS else findings.warn
        report(
            "target-size",
            target.config_file,
            target.prefix + key,
            value,
            "nothing says what the draft is to be held against here; write the size that the "
            "target's class takes, a positive integer",
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
            draft.text.get(key),
            f"the target's states have {hidden} elements ({target.config_file}); this draft was "
            f"made for another target, or lacks target_hidden_size {hidden}",
        )


def check_vocabulary(draft: Checkpoint, target: Checkpoint, findings: Findings) -> None:
    """Both speak of the same tokens, and the draft's reduced vocabulary is a part of them."""
    vocab, theirs = draft.integer("vocab_size"), target.integer("vocab_size")
    if vocab != theirs and (vocab is None or theirs is not None):
        findings.refuse(
            "vocab-size",
            draft.config_file,
            draft.prefix + "vocab_size",
            draft.text.get("vocab_size"),
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
    if not is_whole(reduced) or (vocab is not None and reduced > vocab):
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
    if not _is_number(theta):
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
    for checkpoint in (draft, target):
        _check_scaling(checkpoint, findings)
    if multimodal and "mrope_section" not in rope(target)[1]:
        findings.refuse(
            "rope",
            draft.config_file,
            f"{key}.mrope_section",
            scaling["mrope_section"],
            "the target's positions have one axis, the draft asks for three; remove mrope_section",
        )


def _check_scaling(checkpoint: Checkpoint, findings: Findings) -> None:
    for name in ROPE_KEYS:
        held = checkpoint.text.get(name)
        if held is not None and not isinstance(held, dict):
            findings.refuse(
                "rope",
                checkpoint.config_file,
                checkpoint.prefix + name,
                held,
                'write it as an object, e.g. {"rope_type": "default"}, or leave it out',
            )
    key, scaling = rope(checkpoint)
    factor = scaling.get("factor", 1.0)
    if not _is_number(factor):
        findings.refuse(
            "rope", checkpoint.config_file, f"{key}.factor", factor, "write a positive number"
        )


def rope(checkpoint: Checkpoint) -> tuple[str, dict[str, Any]]:
    """The key and the rope parameters under it, {} where the config has none."""
    for key in ROPE_KEYS:
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
    try:
        return int(factor * length) if _is_number(factor) else length
    except OverflowError:  # of a length beyond any float
        return length


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
