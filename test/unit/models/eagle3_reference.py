"""A plain EAGLE3 draft for tests: one layer, one sequence, its key-value rows in plain sight."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


@dataclass
class Draft:
    """Weights of a `LlamaForCausalLMEagle3` and the rows it has cached.

    Attributes:
        state: checkpoint tensors by name, floating ones in one dtype.
        embedding: the target's, [vocabulary, hidden].
        keys, values: cached rows, [rows, kv heads, head_dim]; tests may damage them.
    """

    config: dict
    state: dict[str, torch.Tensor]
    embedding: torch.Tensor
    keys: torch.Tensor = field(init=False)
    values: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        shape = 0, self.config["num_key_value_heads"], self.config["head_dim"]
        self.keys = self.values = self.embedding.new_zeros(shape)

    @classmethod
    def load(cls, folder: Path, target: Path, dtype: torch.dtype) -> Draft:
        """Reads a draft and the embedding of its target."""
        state = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in load_file(folder / "model.safetensors").items()
        }
        embedding = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
        config = json.loads((folder / "config.json").read_text())
        return cls(config, state, embedding.to(dtype))

    def fuse(self, captured: torch.Tensor) -> torch.Tensor:
        """`fc`: [rows, 3 * hidden] to [rows, hidden]."""
        return F.linear(captured, self.state["fc.weight"])

    def extend(self, hidden: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        """Caches rows after those cached so far.

        Args:
            hidden: [rows, hidden], fused states of the target or this draft's own output.
            tokens: for each row, the token at the position after it.

        Returns:
            Output hidden states before the last norm, [rows, hidden].
        """
        layer = {k.removeprefix("midlayer."): v for k, v in self.state.items()}
        entry = self._norm(self.embedding[tokens], layer["input_layernorm.weight"])
        both = torch.cat([entry, self._norm(hidden, layer["hidden_norm.weight"])], -1)
        hidden = hidden + self._attend(both, layer)
        x = self._norm(hidden, layer["post_attention_layernorm.weight"])
        gate = F.silu(F.linear(x, layer["mlp.gate_proj.weight"]))
        up = F.linear(x, layer["mlp.up_proj.weight"])
        return hidden + F.linear(gate * up, layer["mlp.down_proj.weight"])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, draft vocabulary]."""
        return F.linear(self._norm(hidden, self.state["norm.weight"]), self.state["lm_head.weight"])

    def pick(self, hidden: torch.Tensor) -> int:
        """The token drafted by the last row, as a target id."""
        index = int(self.logits(hidden[-1:]).argmax())
        return index + int(self.state["d2t"][index]) if "d2t" in self.state else index

    def forget(self, rows: int) -> None:
        """Keeps the first `rows` cached rows."""
        self.keys, self.values = self.keys[:rows], self.values[:rows]

    def _attend(self, x: torch.Tensor, layer: dict) -> torch.Tensor:
        rows, size, start = len(x), self.config["head_dim"], len(self.keys)
        q, k, v = (
            F.linear(x, layer[f"self_attn.{name}_proj.weight"]).view(rows, -1, size)
            for name in "qkv"
        )
        positions = torch.arange(start, start + rows)
        self.keys = torch.cat([self.keys, self._rotate(k, positions)])
        self.values = torch.cat([self.values, v])
        group = q.shape[1] // k.shape[1]
        keys, values = (t.repeat_interleave(group, 1) for t in (self.keys, self.values))
        scores = torch.einsum("qhd,khd->hqk", self._rotate(q, positions), keys).float()
        later = torch.arange(start + rows)[None] > positions[:, None]
        chance = (scores * size**-0.5).masked_fill(later, -torch.inf).softmax(-1).to(x.dtype)
        mixed = torch.einsum("hqk,khd->qhd", chance, values).reshape(rows, -1)
        return F.linear(mixed, layer["self_attn.o_proj.weight"])

    def _rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        base = self.config["rope_parameters"]["rope_theta"]
        turn = base ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = (positions[:, None].double() * turn)[:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scale = x.float().square().mean(-1, keepdim=True).add(self.config["rms_norm_eps"]).rsqrt()
        return weight * (x.float() * scale).to(x.dtype)
