"""Weights of the language model: random layers between an embedding and a head that fit together.

A row of the embedding is a random vector of root mean square 1. Each layer adds attention and
experts of about a third of that, in random directions, which moves its state well away from its
neighbours' and still leaves the head its answer: it reads the embedding's direction, and other
tokens' directions lie across it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_spec.models.deepseek import int4
from sglang_spec.models.deepseek.plan import (
    DENSE_INNER,
    DENSE_LAYERS,
    EXPERT_INNER,
    EXPERTS,
    GROUP,
    HEADS,
    HIDDEN,
    KV_RANK,
    LAYERS,
    NOPE,
    Q_RANK,
    ROPE,
    VALUE,
    Plan,
)
from sglang_spec.models.tiny.plan import VOCABULARY

if TYPE_CHECKING:
    import torch


def weights(plan: Plan, dice: torch.Generator) -> dict[str, torch.Tensor]:
    """All tensors by their Hugging Face names, without the wrapper's prefix."""
    import torch

    embedding = torch.randn(VOCABULARY, HIDDEN, generator=dice)
    found = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": head(embedding, plan.successors),
    }
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        found |= {start + name: tensor for name, tensor in _layer(dice).items()}
        if layer < DENSE_LAYERS:
            found |= mlp(f"{start}mlp.", HIDDEN, DENSE_INNER, 1.0, dice)
        else:
            found |= _experts(f"{start}mlp.", plan, dice)
    return {
        name: tensor.to(torch.bfloat16)
        if tensor.is_floating_point() and not name.endswith("correction_bias")
        else tensor
        for name, tensor in found.items()
    }


def head(embedding: torch.Tensor, follows: tuple[int, ...]) -> torch.Tensor:
    """A head that answers `follows[t]` to a state in the direction of token t's embedding.

    Several tokens may have the same successor; its row is the sum of theirs.
    """
    import torch

    rows = torch.zeros_like(embedding)
    rows.index_add_(0, torch.tensor(follows), embedding)
    return rows


def spread(rows: int, columns: int, gain: float, dice: torch.Generator) -> torch.Tensor:
    """[rows, columns] that makes of an input of mean square 1 an output of mean square gain^2."""
    import torch

    made: torch.Tensor = torch.randn(rows, columns, generator=dice) * (gain / columns**0.5)
    return made


def _layer(dice: torch.Generator) -> dict[str, torch.Tensor]:
    import torch

    return {
        "input_layernorm.weight": torch.ones(HIDDEN),
        "post_attention_layernorm.weight": torch.ones(HIDDEN),
        **mla("self_attn.", HIDDEN, dice),
    }


def mla(prefix: str, width: int, dice: torch.Generator) -> dict[str, torch.Tensor]:
    """Latent attention over inputs of `width`; scores spread over about two to either side."""
    import torch

    return {
        f"{prefix}q_a_proj.weight": spread(Q_RANK, width, 1.0, dice),
        f"{prefix}q_a_layernorm.weight": torch.ones(Q_RANK),
        f"{prefix}q_b_proj.weight": spread(HEADS * (NOPE + ROPE), Q_RANK, 1.5, dice),
        f"{prefix}kv_a_proj_with_mqa.weight": spread(KV_RANK + ROPE, width, 1.0, dice),
        f"{prefix}kv_a_layernorm.weight": torch.ones(KV_RANK),
        f"{prefix}kv_b_proj.weight": spread(HEADS * (NOPE + VALUE), KV_RANK, 1.0, dice),
        f"{prefix}o_proj.weight": spread(HIDDEN, HEADS * VALUE, 0.6, dice),
    }


def mlp(
    prefix: str, width: int, inner: int, gain: float, dice: torch.Generator
) -> dict[str, torch.Tensor]:
    """A gated unit over `width`."""
    return {
        f"{prefix}gate_proj.weight": spread(inner, width, 1.0, dice),
        f"{prefix}up_proj.weight": spread(inner, width, 1.0, dice),
        f"{prefix}down_proj.weight": spread(HIDDEN, inner, gain, dice),
    }


def _experts(prefix: str, plan: Plan, dice: torch.Generator) -> dict[str, torch.Tensor]:
    import torch

    found = {
        f"{prefix}gate.weight": spread(EXPERTS, HIDDEN, 2.0, dice),
        f"{prefix}gate.e_score_correction_bias": 0.05 * torch.randn(EXPERTS, generator=dice),
        **mlp(f"{prefix}shared_experts.", HIDDEN, EXPERT_INNER, 0.4, dice),
    }
    for expert in range(EXPERTS):
        for name, rows, columns, gain in (
            ("gate_proj", EXPERT_INNER, HIDDEN, 1.0),
            ("up_proj", EXPERT_INNER, HIDDEN, 1.0),
            ("down_proj", HIDDEN, EXPERT_INNER, 1.0),
        ):
            made = int4.random_weights(rows, columns, GROUP, gain / columns**0.5, dice)
            start = f"{prefix}experts.{expert}.{name}."
            if plan.experts == "int4":
                found |= {start + suffix: tensor for suffix, tensor in made.packed().items()}
            else:
                found[f"{start}weight"] = made.plain()
    return found
