"""The two ends of a target that a draft shares or imitates: embedding and output head."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from .target import TargetError

_EMBEDDING, _HEAD, _NORM = "embed_tokens.weight", "lm_head.weight", "model.norm.weight"


@dataclass(frozen=True)
class Ends:
    """Embedding and head, both [vocabulary, hidden], the same tensor where tied.

    Attributes:
        config: of the (text) model.
        norm: [hidden], weights of the norm before the head, if there are any.
    """

    embedding: torch.Tensor
    head: torch.Tensor
    config: dict[str, Any]
    norm: torch.Tensor | None = None


def read_ends(folder: Path, dtype: torch.dtype, device: torch.device) -> Ends:
    """The tensors of any target, by their usual names; the rest of its weights is not read.

    Raises:
        TargetError: there is no such folder, or no embedding in it.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TargetError(f"{path}: {error}; give the folder of a model") from error
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as held:
            for name in held.keys():  # noqa: SIM118
                for end in (_EMBEDDING, _HEAD, _NORM):
                    if name.endswith(end):
                        found[end] = held.get_tensor(name).to(device, dtype)
    if _EMBEDDING not in found:
        raise TargetError(f"{folder}: no safetensors file holds a tensor …{_EMBEDDING}")
    text = config.get("text_config") or config
    return Ends(found[_EMBEDDING], found.get(_HEAD, found[_EMBEDDING]), text, found.get(_NORM))
