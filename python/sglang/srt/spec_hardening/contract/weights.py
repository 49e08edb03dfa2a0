"""The draft's weight files against its config: names, shapes, the width of `fc`, the maps."""

from __future__ import annotations

from pathlib import Path

from .checkpoint import Checkpoint, read_tensors
from .layer_ids import IDS, ids_key, section
from .layout import Layout, Sizes, llama_layout, mla_layout, whole
from .quantization import is_quantized
from .report import Findings
from .safetensors_header import TensorInfo
from .tensors import check_tensors
from .vocabulary import check_maps


def check_weights(draft: Checkpoint, folder: Path, count: int, findings: Findings) -> None:
    """Every tensor of the checkpoint in `folder`.

    Args:
        count: captured states that `fc` is built for, 0 where none is.
    """
    tensors = read_tensors(folder, findings)
    if tensors is None or findings.has("hidden-size", "vocab-size", "draft-vocab-size"):
        return  # every shape below would be refused for the same reason again
    vocab = draft.integer("vocab_size")
    try:
        layout, sizes = _layout(draft, count)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        key = str(error).strip("'")
        findings.refuse(
            "config-unreadable",
            draft.config_file,
            draft.prefix + key,
            draft.text.get(key.partition(" ")[0]),
            f"{draft.architecture} needs this key, an integer",
        )
        return
    quantized = is_quantized(draft)
    found = check_tensors(tensors, layout, quantized, folder, findings)
    _check_fc(found.get("fc.weight"), sizes, draft, findings)
    if vocab is not None and sizes.draft_vocab is not None:
        check_maps(found, draft, vocab, sizes.draft_vocab, findings)


def _layout(draft: Checkpoint, count: int) -> tuple[Layout, Sizes]:
    text = draft.text
    hidden, vocab = whole(text, "hidden_size"), whole(text, "vocab_size")
    target_hidden = whole(text, "target_hidden_size", hidden)
    tied = bool(text.get("tie_word_embeddings"))
    reduced = None if tied else text.get("draft_vocab_size")
    sizes = Sizes(hidden, target_hidden, count, vocab, reduced, target_hidden != hidden)
    mla = draft.architecture == "Eagle3DeepseekV2ForCausalLM"
    return (mla_layout if mla else llama_layout)(text, sizes), sizes


def _check_fc(fc: TensorInfo | None, sizes: Sizes, draft: Checkpoint, findings: Findings) -> None:
    """The one tensor that says what the draft was trained on."""
    if fc is None:
        return
    if len(fc.shape) != 2:
        expected_shape = [sizes.hidden, sizes.target_hidden * sizes.slots]
        findings.refuse(
            "tensor-shape",
            fc.file,
            fc.name,
            list(fc.shape),
            f"it must be a matrix {expected_shape}",
        )
        return
    rows, width = fc.shape
    key = ids_key(draft.config)
    expected = sizes.target_hidden * sizes.slots
    if rows != sizes.hidden:
        findings.refuse(
            "tensor-shape", fc.file, fc.name, list(fc.shape), f"it must have {sizes.hidden} rows"
        )
    if width == expected and width != sizes.hidden:
        return
    states, rest = divmod(width, sizes.target_hidden)
    if rest:
        findings.refuse(
            "fc-width",
            fc.file,
            fc.name,
            list(fc.shape),
            f"its width is no multiple of the target's hidden size {sizes.target_hidden}: the "
            "draft was trained for another target",
        )
    elif width == sizes.hidden:
        findings.refuse(
            "fc-skipped",
            fc.file,
            fc.name,
            list(fc.shape),
            f"{states} captured state{'s' * (states != 1)} of width {sizes.target_hidden} are as "
            "wide as the draft's embedding, and upstream then skips fc; train the draft on more "
            "layers",
        )
    else:
        findings.refuse(
            "ids-count",
            draft.config_file,
            key,
            section(draft.config).get(IDS, draft.config.get(IDS)),
            f"fc in {fc.file.name} takes {states} states ({width} = {states} x "
            f"{sizes.target_hidden}), the config names {sizes.slots}; name the {states} layers it "
            "was trained on",
        )
