"""What benchmark/phases.py makes of its loads: acceptance that is drawn anew is no overhead."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_spec.bench.load import Burst

CYCLE = 0.01  # seconds
COST = 0.004  # of a cycle, while it is watched


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmark"))
    import phase_bench
    import phase_figures

    yield SimpleNamespace(
        Bench=phase_bench.Bench, outside=phase_bench.outside, figures=phase_figures.figures
    )
    del sys.modules["phase_figures"], sys.modules["phase_bench"]


def played(phases: Any, rounds: int) -> Any:
    """Rounds whose cycles take exactly their time, and whose requests need as many as it falls."""
    dice = random.Random(3)
    bench = phases.Bench("", Path(), None, 0, 0)
    for number in range(rounds):
        for state in ("on", "off"):
            took = CYCLE * (1 + COST * (state == "on"))
            cycles = dice.randrange(50, 80)  # for 159 tokens
            burst = Burst(159 / (cycles * took), cycles * took, 9.0, 160, 2.5, float(cycles))
            bench.samples[1][state][number] = 1 / phases.outside(burst)
            bench.tok_s[1][state].append(burst.tok_s)
    return bench


def test_overhead_is_that_of_a_cycle_not_of_what_was_accepted(phases: Any) -> None:
    found = phases.figures(played(phases, 12))["overhead"]["1"]
    lost = 100 * (1 - 1 / (1 + COST))
    for name in ("percent", "low", "high"):
        assert found[name] == pytest.approx(lost, abs=1e-3)
        assert found["median"][name] == pytest.approx(lost, abs=1e-3)
    assert abs(found["tok_s_on"] / found["tok_s_off"] - 1) > 0.01, "these differ by the draw"
    assert found["rounds"] == 12


def test_few_rounds_have_a_median_without_bounds(phases: Any) -> None:
    found = phases.figures(played(phases, 3))["overhead"]["1"]
    assert found["median"]["low"] is None and found["low"] is not None
