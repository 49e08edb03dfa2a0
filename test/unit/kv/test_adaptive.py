"""What each state of an adaptive server takes."""

from __future__ import annotations

from types import SimpleNamespace

from sglang.srt.spec_hardening.kv import adaptive


def test_each_state_is_told_by_its_steps() -> None:
    worker = SimpleNamespace()
    assert adaptive.told(worker) == {} and adaptive.told(None) == {}
    for steps, gigabytes in ((7, 0.61449), (1, 0.25), (3, -0.01)):
        adaptive.note(worker, steps, gigabytes)
    assert adaptive.told(worker) == {"1": 0.25, "3": 0.0, "7": 0.614}
    assert list(adaptive.told(worker)) == ["1", "3", "7"]
