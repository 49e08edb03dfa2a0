"""The optimizers of one draft, taken together: AdamW for all of it, or Muon for its inner matrices.

Muon turns each momentum matrix into its nearest orthogonal one, so that every direction of it is
learned at the same speed (Jordan 2024); the scale that lets it share AdamW's learning rate is that
of Liu et al. 2025, "Muon is scalable for LLM training". The head stays with AdamW, as in both.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .model import Draft
from .recipe import Fit

_HEAD = "lm_head.weight"


class Optimizers:
    """What `step` and `zero_grad` of each do, in one call; made by `of`."""

    def __init__(self, parts: Iterable[torch.optim.Optimizer]) -> None:
        self._parts = list(parts)
        self._owner = {
            one: part
            for part in self._parts
            for group in part.param_groups
            for one in group["params"]
        }

    @classmethod
    def of(cls, draft: Draft, fit: Fit) -> Optimizers:
        """For every parameter of a draft, as the recipe says."""
        named = dict(draft.named_parameters())
        inner = {n: p for n, p in named.items() if p.dim() == 2 and n != _HEAD}
        muon = inner if fit.optimizer == "muon" else {}
        rest = [one for name, one in named.items() if name not in muon]
        parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                rest,
                lr=fit.learning_rate,
                betas=(0.9, 0.95),
                weight_decay=0.0,
                fused=draft.tokens.device.type == "cuda",
            )
        ]
        if muon:
            parts.append(
                torch.optim.Muon(
                    list(muon.values()),
                    lr=fit.learning_rate,
                    weight_decay=0.0,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        return cls(parts)

    def set_rate(self, rate: float) -> None:
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = rate

    def zero_grad(self) -> None:
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self._parts:
            part.step()

    def moments(self, parameter: torch.nn.Parameter) -> dict[str, torch.Tensor]:
        """What is kept of one parameter, by the optimizer's own names; written to is kept."""
        held: dict[str, torch.Tensor] = self._owner[parameter].state[parameter]
        return held
