"""Which code judges and counts on a device: torch, or two kernels on CUDA if asked.

They have not run on a GPU yet, so `SGLANG_SPEC_PENALTY_KERNELS=1` asks for them.

The choice is made once, when a rank starts (`prepare`), and says so in the log. A kernel that
cannot be had, or that gives other bits than the torch code on this GPU, is not used.

Called by: `start.prove`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any, Protocol

import torch
from sglang.srt.spec_hardening.fidelity.by_torch import TorchStep
from sglang.srt.spec_hardening.fidelity.plan import Plan
from sglang.srt.spec_hardening.fidelity.tree import Tree

logger = logging.getLogger(__name__)

VARIABLE = "SGLANG_SPEC_PENALTY_KERNELS"
WITHOUT = (
    "penalties and min_new_tokens of a verify step run as some 20 operations of torch instead of "
    "2 kernels, which is right but slower: %s"
)


class Step(Protocol):
    """What one verify step does to the requests of a plan."""

    def penalize(self, logits: torch.Tensor) -> None:
        """Change logits [requests * M, vocabulary] in place; nothing is read back to the host."""

    def close(self, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> None:
        """Count what was accepted, as `Window.close`."""


Make = Callable[[Tree, Plan, bool], Step]


@functools.lru_cache
def on(device: torch.device) -> Make:
    """What makes the steps of a device; the kernels are compiled, loaded and tried when it returns.

    What it is made of the second time is what it was the first time.
    """
    if device.type != "cuda" or os.environ.get(VARIABLE) != "1":
        return TorchStep
    try:
        from sglang.srt.spec_hardening.fidelity.fused import FusedStep
    except ImportError as error:
        logger.warning(WITHOUT, f"Triton cannot be imported ({error})")
        return TorchStep
    from sglang.srt.spec_hardening.fidelity import trial

    try:
        found = trial.differences(FusedStep, device)
    except Exception as error:
        logger.warning(WITHOUT, f"the kernels do not run here ({type(error).__name__}: {error})")
        return TorchStep
    if found:
        logger.warning(WITHOUT, f"the kernels gave other logits than torch ({'; '.join(found)})")
        return TorchStep
    logger.info("penalties and min_new_tokens of a verify step run as 2 kernels")
    return FusedStep


def prepare(scheduler: Any) -> None:
    """Choose for a rank's device before it is ready, so that no request waits for a compiler.

    The device is that of the logits: with a number where there can be several.
    """
    device = torch.device(scheduler.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    on(device)
