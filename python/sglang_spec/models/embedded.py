"""The embedded pair: SmolLM2-135M-Instruct and the EAGLE3 draft kept in this repository."""

from __future__ import annotations

import os
from pathlib import Path

from sglang_spec.models import padding, smollm2
from sglang_spec.models.cache import ModelError
from sglang_spec.models.padding import Heads
from sglang_spec.models.pair import Pair

DRAFT_VARIABLE = "SGLANG_SPEC_DRAFT"
_DRAFT = Path("models") / "smollm2-135m-eagle3"


def draft_folder() -> Path:
    """The draft checkpoint: `SGLANG_SPEC_DRAFT`, else `models/` of the checkout.

    Raises:
        ModelError: there is no checkpoint; it is data of the repository, not of the package.
    """
    if chosen := os.environ.get(DRAFT_VARIABLE):
        folder = Path(chosen).expanduser().absolute()
    else:
        folder = Path(__file__).resolve().parents[3] / _DRAFT
    if not (folder / "model.safetensors").is_file():
        raise ModelError(
            f"no draft checkpoint in {folder}; run from a checkout or set {DRAFT_VARIABLE}"
        )
    return folder


def held_out() -> Path:
    """`held_out.jsonl`: prompts the draft never saw, one object a line.

    Keys: `kind` (str), `prompt_ids` and `greedy_answer_ids` (lists of token ids).
    """
    return draft_folder() / "held_out.jsonl"


def embedded_pair(heads: str | None = None, source: Path | None = None) -> Pair:
    """The embedded pair, fetched and converted on first use.

    Args:
        heads: `12/4` (TP 2 and 4) or `24/8` (TP 8) for a target widened with zero heads that
            computes the same function; None keeps the model's own 9/3, for TP 1.
        source: wheel or GGUF at hand, for hosts without network.

    Raises:
        ModelError: see `smollm2.prepare` and `padding.query_places`.
    """
    draft = draft_folder()
    target = smollm2.prepare(source)
    if heads is not None:
        target = padding.prepare(target, Heads.parse(heads))
    return Pair(target, draft)
