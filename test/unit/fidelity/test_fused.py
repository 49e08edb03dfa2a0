"""The penalty kernels of a GPU give the bits of the torch code, and are taken where they do."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kit.fused_trial import CASES, FAULTS, QUICK
from sglang.srt.spec_hardening.fidelity import steps, trial
from sglang.srt.spec_hardening.fidelity.by_torch import TorchStep
from sglang.srt.spec_hardening.fidelity.fused import FusedStep

TESTS = str(Path(__file__).parents[2])
GPU = torch.device("cuda", 0)


def python(*arguments: str, **environment: str) -> str:
    """In a process of its own: the interpreter is chosen when triton is imported."""
    path = {"PYTHONPATH": os.pathsep.join([TESTS, *sys.path])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *arguments],
        env={**os.environ, "TORCH_COMPILE_DISABLE": "1", **path, **environment},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def told(which: str, **environment: str) -> list[dict[str, Any]]:
    out = python("kit.fused_trial", which, **environment)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_kernels_give_the_bits_of_the_torch_code_and_a_fault_in_one_is_seen() -> None:
    found = told("quick", TRITON_INTERPRET="1")
    assert [one["differs"] for one in found if "case" in one] == [[]] * len(QUICK)
    faults = {one["fault"]: one["seen"] for one in found if "fault" in one}
    assert len(faults) == len(FAULTS) and all(faults.values()), faults


@pytest.mark.full  # a minute: the interpreter is slow
def test_kernels_give_the_bits_of_the_torch_code_in_many_batches() -> None:
    found = told("all", TRITON_INTERPRET="1")
    assert [one["differs"] for one in found] == [[]] * len(CASES)


@pytest.mark.full  # the tests of the window run anyway; here with the kernels, which is slow
def test_windows_judged_by_the_kernels_are_judged_as_plain_decoding_would() -> None:
    file = str(Path(__file__).with_name("test_window.py"))
    python("pytest", "-q", "-x", "-p", "no:cacheprovider", file, TRITON_INTERPRET="1")


def test_compiled_kernels_fuse_nothing_and_divide_as_ieee(tmp_path: Path) -> None:
    """A launch is made up to the driver: one for chains and one for trees, by type of the logits,
    whatever the sizes."""
    found = told("compile", TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    assert [one["kernel"] for one in found] == [*["judge"] * 4, *["count"] * 2] * 2
    for one in found:
        assert one["bytes"] > 0
        assert not any(name.startswith(("fma", "mad")) for name in one["seen"])
        if one["kernel"] == "judge":
            assert "div.rn.f32" in one["seen"]
            assert not any(name.startswith("div.full") for name in one["seen"])


@pytest.fixture
def log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.LogCaptureFixture]:
    monkeypatch.setenv(steps.VARIABLE, "1")
    steps.on.cache_clear()
    with caplog.at_level(logging.INFO, logger=steps.logger.name):
        yield caplog
    steps.on.cache_clear()


def test_a_cpu_runs_torch_and_says_nothing(log: pytest.LogCaptureFixture) -> None:
    assert steps.on(torch.device("cpu")) is TorchStep
    assert log.messages == []


def test_a_gpu_runs_torch_where_the_kernels_are_not_asked_for(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(steps.VARIABLE)
    assert steps.on(GPU) is TorchStep
    assert log.messages == []


def test_a_gpu_runs_the_kernels_once_they_are_tried(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(trial, "differences", lambda *args: asked.append(args) or [])
    assert steps.on(GPU) is FusedStep
    assert steps.on(GPU) is FusedStep
    assert asked == [(FusedStep, GPU)]
    assert log.messages == ["penalties and min_new_tokens of a verify step run as 2 kernels"]


def test_a_gpu_without_triton_says_so_by_name(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, FusedStep.__module__)
    monkeypatch.delitem(sys.modules, FusedStep.__module__.replace("fused", "kernel"))
    monkeypatch.delattr("sglang.srt.spec_hardening.fidelity.kernel")
    monkeypatch.setitem(sys.modules, "triton", None)
    assert steps.on(GPU) is TorchStep
    assert "Triton cannot be imported" in log.text and log.records[0].levelname == "WARNING"


@pytest.mark.parametrize("fault", ["raises", "differs"])
def test_kernels_that_do_not_work_on_a_gpu_are_not_used_and_the_log_says_why(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def differences(*_: Any) -> list[str]:
        if fault == "raises":
            raise RuntimeError("no such instruction")
        return ["Case(…): 3 logits in step 0"]

    monkeypatch.setattr(trial, "differences", differences)
    assert steps.on(GPU) is TorchStep
    told = "RuntimeError: no such instruction" if fault == "raises" else "3 logits in step 0"
    assert told in log.text and log.records[0].levelname == "WARNING"


def test_it_is_chosen_before_a_rank_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the device that the rank runs on, also where the self-test is skipped."""
    from sglang.srt.spec_hardening import start

    order: list[str] = []
    monkeypatch.setattr(start.whole, "check", lambda _: order.append("whole"))
    monkeypatch.setattr(start.steps, "on", lambda device: order.append(str(device)))
    monkeypatch.setattr(start, "prove_decoding", lambda _: order.append("decoded"))
    monkeypatch.setattr(start.whole, "mark_ready", lambda decoded: order.append("ready"))
    monkeypatch.setattr(start.distant, "keep_alive", lambda _: None)
    monkeypatch.setattr(start.applied, "of_rank", lambda _: None)
    scheduler = SimpleNamespace(device="cpu", server_args=SimpleNamespace(nnodes=1), tp_group=None)
    start.prove(scheduler)
    assert order == ["whole", "cpu", "decoded", "ready"]
