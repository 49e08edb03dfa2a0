"""What benchmark/host_cost.py replays and makes of its times."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.spec_hardening import construction, cycle
from sglang.srt.spec_hardening.fidelity import window
from sglang.srt.spec_hardening.watch import live

BENCHMARK = Path(__file__).parents[3] / "benchmark"


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a replay sets is as before afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for module, names in {
        live: ("time", "get_parallel", "get_spec", "_watch", "Metrics"),
        cycle: ("_watcher",),
        construction: ("_rank",),
        window: ("_BOOKS",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    yield
    for name in ("host_cost", "host_replay", "host_count"):
        sys.modules.pop(name, None)


def test_a_replayed_cycle_calls_what_a_server_was_seen_to_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = importlib.import_module("host_replay")
    monkeypatch.setattr(live, "Metrics", Silent)
    watched, calls = replay.Watched(), Counter[str]()
    for name in replay.CALLS:
        where: Any = live if name == "observe" else cycle
        plain = getattr(where, name)

        def counting(*args: Any, name: str = name, plain: Any = plain) -> Any:
            calls[name] += 1
            return plain(*args)

        monkeypatch.setattr(where, name, counting)
    watched.run("phases", 2, 34)
    assert calls == {name: 34 * often for name, often in replay.CALLS.items()}
    assert live.info()["acceptance"]["verify_cycles"] == {"3": 68}  # type: ignore[index]
    results = json.loads((BENCHMARK / "results/host_cost.json").read_text())
    assert results["counted"]["calls_a_cycle"] == pytest.approx(replay.CALLS, rel=0.01)


class Silent:
    def __init__(self, labels: dict[str, str]) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def test_penalties_are_replayed_step_by_step() -> None:
    replay = importlib.import_module("host_replay")
    steps = replay.Penalized(2, replay.PENALTIES["all"], 50)
    logits = steps._logits.clone()
    steps.run(3)
    assert not steps._logits.equal(logits)
    assert len(steps._batch.reqs[0].output_ids) == 7
    assert replay.launches(1, replay.PENALTIES["frequency"]) > 5


def test_what_is_compared_is_measured_in_turn_and_who_is_first_goes_round() -> None:
    cost, order = importlib.import_module("host_cost"), list[str]()

    def work(name: str) -> Any:
        return lambda: order.append(name) or len(order)

    found = cost.in_turn({name: work(name) for name in "abc"}, 3)
    assert "".join(order) == "abcbcacab"
    assert found == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_a_level_is_what_it_adds_round_by_round() -> None:
    cost = importlib.import_module("host_cost")
    drift = [0.0, 10.0, 20.0, 30.0]  # of a host that slows down
    found = cost.above({"none": drift, "all": [one + 4 for one in drift]}, "none")
    assert found == {"all": {"median": 4.0, "low": 4.0, "high": 4.0}}


def test_calls_are_counted_without_those_of_a_prefill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = importlib.import_module("host_count")
    monkeypatch.setitem(os.environ, count.VARIABLE, str(tmp_path / "calls"))
    module = SimpleNamespace(enter=lambda stage: stage, observe=lambda *_: None)
    calls = Counter[str]()
    enter, observe = (count.counted(module, name, calls) for name in ("enter", "observe"))
    for _ in range(count.EVERY):
        enter("prefill")
        assert enter("draft") == "draft"
        observe(1, 2)
    assert json.loads((tmp_path / "calls").read_text()) == {
        "enter": count.EVERY,
        "observe": count.EVERY,
    }
