"""Makes the folders of a tiny pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_spec.models import cache
from sglang_spec.models.cache import say
from sglang_spec.models.pair import Pair
from sglang_spec.models.tiny.plan import BOS, EOS, TINY, Plan

if TYPE_CHECKING:
    import torch

PEAK_BYTES = 60_000_000


def tiny_pair(plan: Plan = TINY) -> Pair:
    """The pair of a plan, made on first use; the same plan gives the same bytes everywhere.

    Raises:
        ModelError: the cache cannot be written.
    """
    folder = cache.obtain(plan.entry_name(), lambda work: build(plan, work), needed=PEAK_BYTES)
    return Pair(folder / "target", folder / "draft")


def build(plan: Plan, folder: Path) -> None:
    """Writes `target/` and `draft/` into `folder`."""
    from sglang_spec.models.tiny import draft, target, tokenizer

    say(f"building {plan.entry_name()}")
    write_model(folder / "target", target.config(plan), target.weights(plan))
    tokenizer.write(folder / "target")
    ids = {"bos_token_id": BOS, "eos_token_id": EOS}
    write_json(folder / "target" / "generation_config.json", ids)
    write_model(folder / "draft", draft.config(plan), draft.weights(plan))


def write_model(folder: Path, config: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    write_json(folder / "config.json", config)
    contiguous = {name: weight.contiguous() for name, weight in sorted(state.items())}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
