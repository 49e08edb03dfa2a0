"""What benchmark/fidelity.py keeps when its time is over."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def fidelity(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmark"))
    import fidelity

    yield fidelity
    del sys.modules["fidelity"]


class Answering:
    """A server's client; its answers take no time until there have been `quick` of them."""

    def __init__(self, quick: int) -> None:
        self.left = quick

    def generate_batch(self, prompts: list[list[int]], tokens: int, **_: Any) -> list[Any]:
        self.left -= 1
        if self.left < 0:
            time.sleep(1.1)
        return [SimpleNamespace(seconds=0.5, tokens=[1] * tokens, cycles=4) for _ in prompts]


def test_whole_rounds_are_kept_when_the_time_is_over(fidelity: Any) -> None:
    """Each round asks a server twice; the first round warms up."""
    clients = {"now": Answering(7), "before": Answering(99)}
    found = fidelity.rounds(clients, 2, 12, 9, time.monotonic() + 1)
    assert found["rounds"] == 3
    cells = [
        value for name, value in found.items() if ", penalties" in name and "speed" not in name
    ]
    assert [len(cell["ms_per_step_all"]) for cell in cells] == [3] * 4
    assert fidelity.missing({"2": found}, [2, 4], 9) == (
        "its time was over: 3 of 9 rounds of batch 2, 0 of 9 rounds of batch 4"
    )


def test_no_round_in_time_is_nothing(fidelity: Any) -> None:
    assert fidelity.rounds({"now": Answering(9)}, 1, 8, 9, time.monotonic()) == {}


def test_all_rounds_are_not_partial(fidelity: Any) -> None:
    clients = {"now": Answering(99), "before": Answering(99)}
    found = fidelity.rounds(clients, 1, 8, 2)
    assert found["rounds"] == 2 and fidelity.missing({"1": found}, [1], 2) is None
