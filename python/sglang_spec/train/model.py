"""The EAGLE3 draft in plain PyTorch, with the meaning of SGLang's `LlamaForCausalLMEagle3`.

The row of position t takes the target's states at t, fused by `fc`, and token t + 1; its output
predicts token t + 2. Step k of a chain that starts at t sits at position t + k, takes the output of
step k - 1 (before the last norm) and token t + 1 + k. It attends to the rows of positions up to t,
which are made of the target's states, and to its own chain: what an engine's KV cache holds then.
Parameter names are those of the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from .target import rotary, rotate

ARCHITECTURE = "LlamaForCausalLMEagle3"


@dataclass(frozen=True)
class DraftShape:
    """Sizes of a draft; `slots` states of `hidden` each enter `fc`."""

    hidden: int
    slots: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    eps: float
    theta: float

    @classmethod
    def of(cls, config: dict[str, Any], slots: int) -> DraftShape:
        """From a draft's config.json."""
        heads = config["num_attention_heads"]
        rope = config.get("rope_parameters") or {}
        return cls(
            hidden=config["hidden_size"],
            slots=slots,
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            vocabulary=config.get("draft_vocab_size") or config["vocab_size"],
            eps=config["rms_norm_eps"],
            theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        )


class Norm(nn.Module):
    """RMSNorm in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), self.eps).to(x.dtype)


class Attention(nn.Module):
    """Causal attention over entries twice as wide as the residual; see the module's text."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        wide, size = 2 * shape.hidden, shape.head_dim
        self.head_dim, self.group = size, shape.heads // shape.kv_heads
        self.q_proj = nn.Linear(wide, shape.heads * size, bias=False)
        self.k_proj = nn.Linear(wide, shape.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(wide, shape.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(shape.heads * size, shape.hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        table: torch.Tensor,
        past: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """x [batch, length, 2 * hidden]; `past` gets this step's keys and values appended."""
        length, step = x.shape[1], len(past)
        q, k, v = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        here = table[:, step : step + length].to(x.dtype)
        q, k = rotate(q, here).to(v.dtype), rotate(k, here).to(v.dtype)
        past.append((k, v))
        keys, values = (torch.cat(part, 2) for part in zip(*past, strict=True))
        if self.group > 1:
            keys, values = (one.repeat_interleave(self.group, 1) for one in (keys, values))
        if step:
            seen = chain_mask(length, step, x.device)
            mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        else:
            mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
        out: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out


def chain_mask(length: int, step: int, device: torch.device) -> torch.Tensor:
    """[length, (step + 1) * length] bool: a step sees rows up to its start, and its own chain."""
    own = torch.eye(length, dtype=torch.bool, device=device)
    return torch.cat([torch.ones_like(own).tril(), own.repeat(1, step)], 1)


class Mlp(nn.Module):
    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """The one decoder layer: its residual is the fused state, not the token."""

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape.hidden, shape.intermediate)
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.hidden_norm = Norm(shape.hidden, shape.eps)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)

    def forward(
        self,
        entry: torch.Tensor,
        state: torch.Tensor,
        table: torch.Tensor,
        past: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        both = torch.cat([self.input_layernorm(entry), self.hidden_norm(state)], -1)
        state = state + self.self_attn(both, table, past)
        out: torch.Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out


class Draft(nn.Module):
    """A draft and the target tokens that its rows of `lm_head` stand for.

    Args:
        tokens: [draft vocabulary] int64, increasing.

    `scale`, [slots * hidden], divides each channel of the target's states by its size while
    training: they differ a hundredfold. `state` folds it into `fc`.
    """

    tokens: torch.Tensor
    scale: torch.Tensor
    table: torch.Tensor

    def __init__(self, shape: DraftShape, tokens: torch.Tensor, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(shape.slots * shape.hidden, shape.hidden, bias=False)
        self.midlayer = Layer(shape)
        self.norm = Norm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        self.register_buffer("tokens", tokens, persistent=False)
        self.register_buffer("scale", torch.ones(shape.slots * shape.hidden), persistent=False)
        self.register_buffer("table", torch.empty(2, 0, shape.head_dim), persistent=False)
        self._start(seed)

    def _start(self, seed: int) -> None:
        """Matrices of unit gain, and a layer that adds nearly nothing at first."""
        draw = torch.Generator().manual_seed(seed)
        for name, one in self.named_parameters():
            if one.dim() == 2:
                small = name.endswith(("o_proj.weight", "down_proj.weight"))
                size = 0.005 if small else one.shape[1] ** -0.5
                nn.init.normal_(one, std=size, generator=draw)

    @torch.no_grad()
    def take_ends(self, head: torch.Tensor, norm: torch.Tensor | None) -> None:
        """Begin with the target's rows of `lm_head`, [vocabulary, hidden], and its norm [hidden].

        Then what a residual direction says is known from the first step, and the layer has only
        to learn what to add.
        """
        self.lm_head.weight.copy_(head[self.tokens])
        if norm is not None:
            self.norm.weight.copy_(norm)

    def unroll(
        self, embedding: torch.Tensor, ids: torch.Tensor, states: torch.Tensor, steps: int
    ) -> Iterator[torch.Tensor]:
        """One hidden state a step, for a chain from every position.

        Args:
            embedding: the target's, [vocabulary, hidden].
            ids: [batch, length] target tokens; those after the end count as 0.
            states: [batch, length, slots * hidden], the target's at the same positions.

        Yields:
            [batch, length, hidden] before the last norm; row t of step k predicts token t + 2 + k.
        """
        length = ids.shape[1]
        entries = F.pad(ids[:, 1:], (0, steps))
        if self.table.shape[1] < length + steps:
            room = max(1024, 2 * (length + steps))
            table = rotary(self.shape.head_dim, self.shape.theta, room, {})
            self.table = table.to(states.device)
        past: list[tuple[torch.Tensor, torch.Tensor]] = []
        state = self.fc(states * self.scale.to(states.dtype))
        for step in range(steps):
            entry = F.embedding(entries[:, step : step + length], embedding).to(state.dtype)
            state = self.midlayer(entry, state, self.table, past)
            yield state

    def logits(self, state: torch.Tensor) -> torch.Tensor:
        """[…, draft vocabulary]."""
        out: torch.Tensor = self.lm_head(self.norm(state))
        return out

    def state(self) -> dict[str, torch.Tensor]:
        """Checkpoint tensors by name, the scale folded in, in the dtype of the parameters."""
        held = {name: one.detach().clone() for name, one in self.named_parameters()}
        held["fc.weight"] *= self.scale.to(held["fc.weight"].dtype)
        return held


def load_draft(folder: Path, dtype: torch.dtype, device: torch.device) -> Draft:
    """The draft of a checkpoint, ready to be evaluated."""
    config = json.loads((folder / "config.json").read_text())
    held: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        held |= load_file(file)
    names = {name: name.replace("layers.0.", "midlayer.").removeprefix("model.") for name in held}
    state = {names[name]: one for name, one in held.items()}
    difference = state.pop("d2t", None)
    state.pop("t2d", None)
    shape = DraftShape.of(config, state["fc.weight"].shape[1] // config["hidden_size"])
    rows = torch.arange(shape.vocabulary)
    draft = Draft(shape, rows if difference is None else rows + difference)
    draft.load_state_dict(state)
    return draft.to(device, dtype).eval()
