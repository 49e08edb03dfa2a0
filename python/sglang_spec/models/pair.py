"""A target and the draft that speculates for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """Two Hugging Face folders that a server can be started with.

    Attributes:
        target: folder of the model, tokenizer included.
        draft: folder of its EAGLE3 draft.
    """

    target: Path
    draft: Path
