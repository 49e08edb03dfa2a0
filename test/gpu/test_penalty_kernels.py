"""The kernels that judge a verify step with penalties give the bits of the torch code on a GPU.

The cases are those that triton's interpreter is given on the CPU (`kit.fused_trial`), and a batch
with the vocabulary of a Llama 3.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kit.fused_trial import CASES, FAULTS, QUICK, faulty
from sglang.srt.spec_hardening.fidelity import steps, trial

LARGE = replace(trial.CASES[0], asked=trial.ASKED * 8, vocabulary=128_256, few=2000)
TREES = replace(LARGE, is_tree=True, nodes=8, before=900)


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_give_the_bits_of_the_torch_code(dtype: torch.dtype) -> None:
    from sglang.srt.spec_hardening.fidelity.fused import FusedStep

    cases = [replace(case, dtype=dtype) for case in (*QUICK, *CASES, LARGE, TREES)]
    assert trial.differences(FusedStep, device(), cases) == []


def test_a_fault_in_a_kernel_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Faults that do not lead outside the tensors."""
    from sglang.srt.spec_hardening.fidelity import fused

    for old, new in FAULTS[:10]:
        monkeypatch.setattr(fused, "kernel", faulty(old, new, tmp_path))
        assert trial.differences(fused.FusedStep, device(), QUICK) != [], old


def test_the_kernels_are_what_a_rank_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.spec_hardening.fidelity.fused import FusedStep

    monkeypatch.setenv(steps.VARIABLE, "1")
    steps.on.cache_clear()
    assert steps.on(device()) is FusedStep
