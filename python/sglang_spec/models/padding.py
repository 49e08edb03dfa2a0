"""Widens attention with heads of zeros, so that tensor parallelism can divide it.

A zero head has zero rows in q, k and v and zero columns in o: it attends evenly over values that
are zero and hands on nothing, so the function is unchanged. A KV head must keep its own query
heads, hence a query head moves to `kv * new_group + place` where groups grow.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_spec.models import cache
from sglang_spec.models.cache import ModelError, say

if TYPE_CHECKING:
    import torch

PADDING_VERSION = 1
_QUERY, _KEY, _VALUE, _OUTPUT = (f"self_attn.{x}_proj.weight" for x in "qkvo")


@dataclass(frozen=True)
class Heads:
    """Query and KV heads of an attention layer.

    Raises:
        ModelError: the KV heads do not divide the query heads.
    """

    query: int
    kv: int

    def __post_init__(self) -> None:
        if self.query < 1 or self.kv < 1 or self.query % self.kv:
            raise ModelError(f"{self} is no head layout: KV heads must divide query heads")

    def __str__(self) -> str:
        return f"{self.query}/{self.kv}"

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.query // self.kv

    @classmethod
    def parse(cls, text: str) -> Heads:
        """Reads `12/4`; raises ModelError for anything else."""
        query, slash, kv = text.partition("/")
        if not (slash and query.isdigit() and kv.isdigit()):
            raise ModelError(f"heads are written query/kv, like 12/4; got {text!r}")
        return cls(int(query), int(kv))


def query_places(old: Heads, new: Heads) -> list[int]:
    """For each old query head, its index among the new ones, with the same KV head as before.

    Raises:
        ModelError: `new` has fewer KV heads, or fewer query heads per KV head.
    """
    if new.kv < old.kv or new.group < old.group:
        raise ModelError(
            f"cannot widen {old} to {new} heads: needs at least {old.kv} KV heads "
            f"with {old.group} query heads each"
        )
    return [head // old.group * new.group + head % old.group for head in range(old.query)]


def pad_state(
    state: dict[str, torch.Tensor], old: Heads, new: Heads, head_dim: int
) -> dict[str, torch.Tensor]:
    """The same weights with every attention widened from `old` to `new` heads.

    Args:
        state: tensors by Hugging Face name; attention without biases.
        head_dim: rows (q, k, v) or columns (o) of a head.
    """
    places = query_places(old, new)
    layouts = {
        _QUERY: (places, new.query, 0),
        _KEY: (list(range(old.kv)), new.kv, 0),
        _VALUE: (list(range(old.kv)), new.kv, 0),
        _OUTPUT: (places, new.query, 1),
    }
    padded = dict(state)
    for name, weight in state.items():
        for suffix, (where, count, axis) in layouts.items():
            if name.endswith(suffix):
                padded[name] = _spread(weight, where, count, head_dim, axis)
    return padded


def _spread(
    weight: torch.Tensor, places: list[int], count: int, head_dim: int, axis: int
) -> torch.Tensor:
    """Puts head i of `weight` (along `axis`) at `places[i]` of `count` heads, zeros elsewhere."""
    shape = list(weight.shape)
    shape[axis] = count * head_dim
    wide = weight.new_zeros(shape)
    for old, new in enumerate(places):
        source = weight.narrow(axis, old * head_dim, head_dim)
        wide.narrow(axis, new * head_dim, head_dim).copy_(source)
    return wide


def pad_folder(source: Path, target: Path, new: Heads) -> None:
    """Writes a copy of the model folder `source` with `new` heads into the folder `target`."""
    from safetensors.torch import load_file, save_file

    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    old = Heads(config["num_attention_heads"], config["num_key_value_heads"])
    say(f"padding {old} heads with zeros to {new}")
    state = pad_state(load_file(source / "model.safetensors"), old, new, config["head_dim"])
    for path in source.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            shutil.copy2(path, target / path.name)
    config |= {"num_attention_heads": new.query, "num_key_value_heads": new.kv}
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(state, target / "model.safetensors", metadata={"format": "pt"})


def padded_name(source: Path, new: Heads) -> str:
    """Cache entry of the padded copy of the cache entry `source`."""
    kind = source.name.rpartition("-")[0]
    recipe: dict[str, object] = {"of": source.name, "heads": str(new), "padding": PADDING_VERSION}
    return f"{kind}-{new.query}x{new.kv}-{cache.digest(recipe)}"


def prepare(source: Path, new: Heads) -> Path:
    """The cache entry `source` with `new` heads, made on first use."""
    size = (source / "model.safetensors").stat().st_size
    needed = 2 * size + 50_000_000  # attention is a minority of the weights
    return cache.obtain(
        padded_name(source, new), lambda folder: pad_folder(source, folder, new), needed=needed
    )
