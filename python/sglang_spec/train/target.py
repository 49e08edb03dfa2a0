"""A plain Llama-like target: hidden states for training, a KV cache for answering.

Reads config.json and safetensors itself, so it runs where there is PyTorch and nothing else.
Llama, Mistral, Qwen2 and Qwen3 are known: biases and per-head norms are used where the checkpoint
has them. Any other target is trained on by way of `sglang-spec capture`, whose data holds its
states.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

Block = Callable[[dict[str, torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]
FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class TargetError(ValueError):
    """A target that this module cannot compute; the text names file, key, value and remedy."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a target, from its config.json."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    eps: float
    theta: float
    positions: int
    config: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Shape:
        path = folder / "config.json"
        try:
            config = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise TargetError(f"{path}: {error}; give the folder of a model") from error
        name = (config.get("architectures") or ["none"])[0]
        if name not in FAMILIES:
            raise TargetError(
                f"{path}: architectures = {name}: the trainer computes {', '.join(FAMILIES)}; for "
                "another target train on `sglang-spec capture dump` and `standardize` (--data)"
            )
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "llama3"):
            raise TargetError(
                f"{path}: rope type {kind!r}: only default and llama3 are known; train on data of "
                "`sglang-spec capture` (--data)"
            )
        heads = config["num_attention_heads"]
        return cls(
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            eps=config["rms_norm_eps"],
            theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
            positions=config.get("max_position_embeddings", 2048),
            config=config,
        )


def rotary(head_dim: int, theta: float, length: int, scaling: dict[str, Any]) -> torch.Tensor:
    """Cosines and sines, [2, length, head_dim] float32, for half-split rotation.

    `scaling` is the config's rope_parameters: of type llama3 long wavelengths are stretched.
    """
    turn = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling.get("rope_type", scaling.get("type")) == "llama3":
        turn = _stretched(turn, scaling)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * turn
    both = torch.cat([angle, angle], -1)
    return torch.stack([both.cos(), both.sin()]).float()


def _stretched(turn: torch.Tensor, scaling: dict[str, Any]) -> torch.Tensor:
    """Llama 3.1: wavelengths above old/low are `factor` times longer, below old/high unchanged."""
    old = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = ((old * turn / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    made: torch.Tensor = share * turn + (1 - share) * turn / float(scaling["factor"])
    return made


def rotate(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Turn x [..., length, head_dim] by table [2, (...,) length, head_dim] of its dtype."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    made: torch.Tensor = x * table[0] + turned * table[1]
    return made


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """In float32, back in the dtype of x before the weight is applied, as Llama does."""
    scaled: torch.Tensor = F.rms_norm(x.float(), x.shape[-1:], None, eps)
    normed: torch.Tensor = weight * scaled.to(x.dtype)
    return normed


class Target:
    """The frozen target on one device.

    Attributes:
        embedding: [vocabulary, hidden]; `head`: the same shape, the very same tensor where tied.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        self.folder, self.dtype, self.device = folder, dtype, device
        self.shape = Shape.read(folder)
        held = _read_weights(folder)
        self._weights = {name: one.to(device, dtype) for name, one in held.items()}
        self.embedding = self._weights["model.embed_tokens.weight"]
        self.head = self._weights.get("lm_head.weight", self.embedding)
        self.final_norm = self._weights["model.norm.weight"]
        self._layers = [self._layer(index) for index in range(self.shape.layers)]
        scaling = self.shape.config.get("rope_parameters") or {}
        scaling = scaling or self.shape.config.get("rope_scaling") or {}
        length = min(self.shape.positions, 1 << 17)
        table = rotary(self.shape.head_dim, self.shape.theta, length, scaling)
        self.table = table.to(device, dtype)
        self._fast: Block | None = None

    def _layer(self, index: int) -> dict[str, torch.Tensor]:
        start = f"model.layers.{index}."
        part = {n.removeprefix(start): w for n, w in self._weights.items() if n.startswith(start)}
        joined = {}
        for kind in ("weight", "bias"):
            names = [f"self_attn.{name}_proj.{kind}" for name in "qkv"]
            if names[0] in part:
                joined[f"qkv.{kind}"] = torch.cat([part.pop(name) for name in names])
        pair = [part.pop(f"mlp.{name}_proj.weight") for name in ("gate", "up")]
        for name in [n for n in self._weights if n.startswith(start)]:
            if name.removeprefix(start) not in part:
                del self._weights[name]  # joined above: kept once
        return part | joined | {"gate_up.weight": torch.cat(pair)}

    @torch.no_grad()
    def states(
        self, ids: torch.Tensor, outputs: Sequence[int], compiled: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What a draft is trained on.

        Args:
            ids: [batch, length], padded on the right (later columns reach no earlier ones).
            outputs: layers whose outputs are taken, -1 for the embedding, in the order wanted.
            compiled: by `torch.compile`, once for all layers and sizes; faster on a GPU, and equal
                up to rounding.

        Returns:
            [batch, length, len(outputs) * hidden] and the last state after the final norm.
        """
        table = self.table[:, : ids.shape[1]]
        x = F.embedding(ids, self.embedding)
        kept = {-1: x}
        run = self._compiled() if compiled else self._block
        for index, weights in enumerate(self._layers):
            x = run(weights, x, table)
            if index in outputs:
                kept[index] = x
        last = rms_norm(x, self.final_norm, self.shape.eps)
        return torch.cat([kept[index] for index in outputs], -1), last

    def _block(
        self, weights: dict[str, torch.Tensor], x: torch.Tensor, table: torch.Tensor
    ) -> torch.Tensor:
        """One layer for whole sequences x [batch, length, hidden]."""
        q, k, v = project(self.shape, weights, x, table)
        group = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return finish(self.shape, weights, x, mixed.transpose(1, 2).flatten(2))

    def _compiled(self) -> Block:
        if self._fast is None:
            self._fast = torch.compile(self._block, dynamic=True)
        return self._fast

    def project(
        self, index: int, x: torch.Tensor, table: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`project` of one layer."""
        return project(self.shape, self._layers[index], x, table)

    def finish(self, index: int, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """`finish` of one layer."""
        return finish(self.shape, self._layers[index], x, mixed)

    def logits(self, last: torch.Tensor) -> torch.Tensor:
        """[…, vocabulary] of states after the final norm."""
        return F.linear(last, self.head)


def project(
    shape: Shape, w: dict[str, torch.Tensor], x: torch.Tensor, table: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v of a layer for x [batch, length, hidden]: [batch, heads, length, dim].

    `table` is [2, length, dim] or [2, batch, 1, length, dim] for positions of each row.
    """
    h = rms_norm(x, w["input_layernorm.weight"], shape.eps)
    joined = F.linear(h, w["qkv.weight"], w.get("qkv.bias"))
    split = joined.view(*joined.shape[:2], -1, shape.head_dim).transpose(1, 2)
    q, k, v = torch.split(split, [shape.heads, shape.kv_heads, shape.kv_heads], 1)
    if "self_attn.q_norm.weight" in w:
        q = rms_norm(q, w["self_attn.q_norm.weight"], shape.eps)
        k = rms_norm(k, w["self_attn.k_norm.weight"], shape.eps)
    return rotate(q, table), rotate(k, table), v


def finish(
    shape: Shape, w: dict[str, torch.Tensor], x: torch.Tensor, mixed: torch.Tensor
) -> torch.Tensor:
    """The rest of a layer: x and the heads' mixed values [batch, length, heads * dim]."""
    x = x + F.linear(mixed, w["self_attn.o_proj.weight"])
    h = rms_norm(x, w["post_attention_layernorm.weight"], shape.eps)
    gate, up = F.linear(h, w["gate_up.weight"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w["mlp.down_proj.weight"])


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise TargetError(f"{folder}: no .safetensors file; the trainer reads no other weights")
    held: dict[str, torch.Tensor] = {}
    for file in files:
        held |= load_file(file)
    return held
