"""SGLANG_SPEC_FAULT: what it accepts, what it refuses, and that unset it does nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from sglang.srt.spec_hardening import faults, stages


@pytest.fixture(autouse=True)
def _disarmed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    monkeypatch.setenv("SGLANG_TEST_MODE", "1")
    yield
    monkeypatch.undo()
    faults.arm(0)


def _arm(monkeypatch: pytest.MonkeyPatch, text: str, tp_rank: int = 0) -> None:
    monkeypatch.setenv(faults.VARIABLE, text)
    faults.arm(tp_rank)


@pytest.mark.parametrize("stage", [*stages.STAGES, *stages.CYCLE], ids=lambda stage: stage.name)
def test_every_stage_can_raise(stage: stages.Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _arm(monkeypatch, stage.name)
    with pytest.raises(faults.InjectedFault, match=stage.name):
        faults.hit(stage.name)


def test_it_is_refused_outside_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_TEST_MODE")
    monkeypatch.setenv(faults.VARIABLE, "verify")
    with pytest.raises(ValueError, match="SGLANG_TEST_MODE is not set"):
        faults.from_environment()


@pytest.mark.parametrize(
    "text",
    ["nowhere", "verify:sometimes", "lm_head:shape", "verify:raise:first", "serving_lm_head"],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.split(":")[0]):
        faults.parse(text)


def test_it_hits_only_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    _arm(monkeypatch, "verify:raise:1", tp_rank=0)
    faults.hit("verify")
    _arm(monkeypatch, "verify:raise:1", tp_rank=1)
    with pytest.raises(faults.InjectedFault):
        faults.hit("verify")


def test_a_serving_fault_waits_for_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    _arm(monkeypatch, "serving_verify")
    faults.hit("verify")
    faults.mark_ready()
    with pytest.raises(faults.InjectedFault):
        faults.hit("verify")


def test_exit_is_the_silent_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    _arm(monkeypatch, "lm_head:exit")
    with pytest.raises(SystemExit) as left:
        faults.hit("lm_head")
    assert left.value.code == 0


def test_shape_and_nan_damage_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    _arm(monkeypatch, "verify:shape")
    result = SimpleNamespace(accept_lens=torch.ones(3, dtype=torch.int32))
    faults.damage_fields("verify", result, "accept_lens")
    assert result.accept_lens.shape == (2,)
    _arm(monkeypatch, "verify:nan")
    assert torch.isnan(faults.damage("verify", torch.zeros(2))).all()
    assert torch.equal(faults.damage("verify", torch.arange(2)), torch.arange(2))


def test_unset_it_returns_the_very_tensor() -> None:
    faults.arm(0)
    tensor = torch.zeros(2)
    assert faults.damage("verify", tensor) is tensor
    faults.hit("verify")
