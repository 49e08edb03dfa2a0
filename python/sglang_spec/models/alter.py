"""Copies of a model folder with something wrong in them, for tests that must notice it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def altered(
    source: Path,
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    change: Callable[[dict[str, torch.Tensor]], None] | None = None,
) -> Path:
    """A copy of the model in `source`, at `folder`, which must not exist.

    Args:
        config: keys of `config.json` to replace; None as a value removes the key.
        change: alters the tensors, by name, in place.

    Returns:
        `folder`.
    """
    shutil.copytree(source, folder)
    if config is not None:
        path = folder / "config.json"
        merged = json.loads(path.read_text(encoding="utf-8")) | dict(config)
        kept = {key: value for key, value in merged.items() if value is not None}
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    if change is not None:
        from safetensors.torch import load_file, save_file

        path = folder / "model.safetensors"
        state = load_file(path)
        change(state)
        save_file({k: v.contiguous() for k, v in state.items()}, path, metadata={"format": "pt"})
    return folder


def with_capture(draft: Path, folder: Path, ids: list[int]) -> Path:
    """A copy of an EAGLE3 draft that asks for other layers of its target."""
    found = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    eagle = found["eagle_config"] | {"eagle_aux_hidden_state_layer_ids": ids}
    return altered(draft, folder, config={"eagle_config": eagle})
