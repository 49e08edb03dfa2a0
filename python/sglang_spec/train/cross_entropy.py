"""Cross entropy against a distribution, in a third of the memory traffic of torch's.

Over a vocabulary of thousands a step's time goes into reading and writing [n, vocabulary] in
float32, forward and backward. The gradient is known as soon as the loss is (softmax minus the
wanted distribution), so it is formed then, in the logits' dtype, and nothing wider is kept.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_ROWS = 2048  # at a time, in float32; compiled, nothing is held in float32


def _part(logits: torch.Tensor, chance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum over some rows, and its gradient."""
    wide = logits.float()
    norm = wide.logsumexp(-1, keepdim=True)
    counts = chance.sum(-1, keepdim=True)
    gradient = (torch.exp(wide - norm) * counts - chance).to(logits.dtype)
    return (norm * counts).sum() - (wide * chance).sum(), gradient


@cache
def _compiled() -> Any:
    return torch.compile(_part, dynamic=True)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, chance: torch.Tensor, compiled: bool
    ) -> torch.Tensor:
        if compiled:
            total, gradient = _compiled()(logits, chance)
        else:
            parts = zip(torch.split(logits, _ROWS), torch.split(chance, _ROWS), strict=True)
            sums, gradients = zip(*(_part(*part) for part in parts), strict=True)
            total, gradient = torch.stack(sums).sum(), torch.cat(gradients)
        ctx.save_for_backward(gradient)
        mean: torch.Tensor = total / len(logits)
        return mean

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * (grads[0] / len(gradient)).to(gradient.dtype), None, None


def cross_entropy(
    logits: torch.Tensor, chance: torch.Tensor, compiled: bool = False
) -> torch.Tensor:
    """The mean over rows, as `torch.nn.functional.cross_entropy(logits.float(), chance)`.

    Args:
        logits: [n, vocabulary], n > 0, of any float dtype; gradients come back in it.
        chance: [n, vocabulary] float32; a row sums to 1, or is all zeros and adds nothing.
        compiled: by `torch.compile`; the same up to rounding.
    """
    found: torch.Tensor = _CrossEntropy.apply(logits, chance, compiled)
    return found
