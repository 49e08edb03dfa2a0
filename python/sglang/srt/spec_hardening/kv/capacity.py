"""How many tokens of KV fit: from the configs of a pair, before anything is loaded.

Upstream gives the draft's pool as many tokens as the target's, and budgets for each of the draft's
layers what a layer of the target takes. Where the draft's layers are of another kind (a Llama draft
of an MLA target, other numbers of KV heads), its pool takes more or less than was budgeted.

Called by: `sglang_spec/doctor/kv.py`. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class CapacityUnknown(ValueError):
    """A config whose KV is not that of plain attention or MLA; the text names key and value."""


@dataclass(frozen=True)
class Cost:
    """Bytes of KV that one token takes on one rank.

    Attributes:
        target: in the target's pool.
        draft: in the draft's own pool; 0 without speculation.
        budgeted: what upstream's sizing allows for the draft.
    """

    target: int
    draft: int = 0
    budgeted: int = 0

    def tokens(self, budget: int, page_size: int = 1) -> int:
        """Tokens that upstream's sizing gives for `budget` bytes, in whole pages."""
        return budget // (self.target + self.budgeted) // page_size * page_size

    def without(self, budget: int, page_size: int = 1) -> int:
        """The same without speculation, the draft's weights not counted."""
        return budget // self.target // page_size * page_size

    def taken(self, tokens: int, page_size: int = 1) -> int:
        """Bytes that both pools take for `tokens`; each has a page for padding besides."""
        return (tokens + page_size) * (self.target + self.draft)


def layer_bytes(config: Mapping[str, Any], ranks: int, item: int) -> int:
    """Bytes of KV of one token in one layer on one of `ranks` tensor-parallel ranks.

    Args:
        config: a model's `config.json`, or its `text_config`.
        item: bytes of a number in the KV cache.

    Raises:
        CapacityUnknown: sliding windows, recurrent layers, sparse indices, or keys that lack.
    """
    for key in ("sliding_window", "layers_block_type", "linear_attn_config", "index_topk"):
        if config.get(key) and config.get("use_sliding_window", True):
            raise CapacityUnknown(f"{key}: {config[key]!r}: only plain attention and MLA are known")
    if config.get("kv_lora_rank"):  # one latent vector, on every rank
        return (int(config["kv_lora_rank"]) + int(config["qk_rope_head_dim"])) * item
    heads = config.get("num_attention_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    if not heads or not kv_heads:
        raise CapacityUnknown(f"num_attention_heads: {heads!r}: a number was expected")
    width = config.get("head_dim") or int(config["hidden_size"]) // int(heads)
    return 2 * max(1, int(kv_heads) // ranks) * int(width) * item


def cost(
    target: Mapping[str, Any], draft: Mapping[str, Any] | None, ranks: int = 1, item: int = 2
) -> Cost:
    """Of a pair, or of a target alone. See `layer_bytes` for arguments and errors."""
    target, draft = text_config(target), None if draft is None else text_config(draft)
    layers = int(target["num_hidden_layers"])
    of_target = layers * layer_bytes(target, ranks, item)
    if draft is None:
        return Cost(of_target)
    drafted = int(draft["num_hidden_layers"])
    return Cost(
        of_target, drafted * layer_bytes(draft, ranks, item), int(of_target * drafted / layers)
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the language model."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) and "num_hidden_layers" in inner else config
