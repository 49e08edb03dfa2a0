"""The watch in a rank, driven by the calls that the engine makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.spec_hardening import construction, cycle, record
from sglang.srt.spec_hardening.watch import live
from sglang.srt.spec_hardening.watch.settings import Level, timed_every

WORKER = SimpleNamespace(topk=1, adaptive_controller=None, speculative_num_steps=3)
PROVEN = {"state": "proven", "accept_length": 3.9}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[record.Rank]:
    board = record.Board.create()
    rank = board.claim("rank TP0")
    monkeypatch.setattr(construction, "_rank", rank)
    parallel = SimpleNamespace(attn_dp_rank=0, dp_rank=None, pp_size=1)
    spec = SimpleNamespace(speculative_disable_batch_threshold=None)
    monkeypatch.setattr(live, "get_parallel", lambda: parallel)
    monkeypatch.setattr(live, "get_spec", lambda: spec)
    yield rank
    os.environ.pop(record.PATH_VARIABLE, None)


@pytest.fixture
def watch(page: record.Rank, monkeypatch: pytest.MonkeyPatch) -> Iterator[live.Watch]:
    made = live.Watch(scheduler(), WORKER, Level.PHASES, PROVEN)
    monkeypatch.setattr(live, "_watch", made)
    cycle.watch_with(made)
    yield made
    cycle.watch_with(None)


def scheduler(reports: bool = True) -> Any:
    reporter = SimpleNamespace(
        is_stats_logging_rank=reports, current_scheduler_metrics_enabled=False
    )
    return SimpleNamespace(device="cpu", metrics_reporter=reporter, metrics_collector=None)


GREEDY = SimpleNamespace(temperature=1.0, top_k=1)  # as SGLang writes a temperature of 0


def batch(rids: Sequence[str], ended: Sequence[str] = (), params: Any = GREEDY) -> Any:
    mode = SimpleNamespace(is_idle=lambda: False)
    reqs = [
        SimpleNamespace(
            rid=rid,
            is_retracted=False,
            finished=lambda rid=rid: rid in ended,
            sampling_params=params,
        )
        for rid in rids
    ]
    return SimpleNamespace(reqs=reqs, forward_mode=mode)


def run(
    rids: Sequence[str],
    correct: Sequence[int],
    ended: Sequence[str] = (),
    width: int = 4,
    params: Any = GREEDY,
) -> None:
    """One cycle and its result; `width` 0 is a step without speculation."""
    launched = batch(rids, ended, params)
    cycle.launched(launched)
    if width:
        cycle.enter("draft")
    cycle.enter("verify")
    cycle.begin("verify" if width else "decode")
    cycle.begin("sample")
    if width:
        cycle.enter("draft_extend")
    cycle.ended()
    result = SimpleNamespace(
        num_correct_drafts_per_req_cpu=list(correct),
        is_plain_step=not width,
        speculative_num_draft_tokens=width or 1,
    )
    live.observe(launched, result)


def test_a_cycle_is_timed_and_counted(watch: live.Watch) -> None:
    run(["a", "b"], [3, 1])
    run(["a", "b"], [0, 2])
    told = live.info()
    assert told is not None
    assert told["acceptance"]["accept_length"] == 2.5
    assert told["acceptance"]["verify_cycles"] == {"3": 4}
    assert list(told["phases"]) == ["2"] and told["phases"]["2"]["cycles"] == 2
    assert set(told["phases"]["2"]["phases_ms"]) == {
        "wait",
        "prepare",
        "draft",
        "verify",
        "sample",
        "draft_extend",
    }
    assert " ms, " in live.log_part() and live.log_part() == ""


def test_requests_that_have_ended_are_not_counted(watch: live.Watch) -> None:
    """Under overlap they have a row in the batch that was launched before it was known."""
    run(["a", "b", "c"], [3, 3, 1], ended=["a", "b"])
    told = live.info()
    assert told is not None and told["acceptance"]["verify_cycles"] == {"3": 1}
    assert told["acceptance"]["accept_length"] == 2.0


def test_a_step_without_speculation_is_no_cycle(watch: live.Watch) -> None:
    run(["a"], [1])
    run(["a"], [0], width=0)
    told = live.info()
    assert told is not None
    acceptance = told["acceptance"]
    assert acceptance["plain_cycles"] == 1 and acceptance["accept_length"] == 2.0
    assert acceptance["switches"] == [{"from": 3, "to": 0, "reason": "batch_size", "count": 1}]
    assert "decode" in told["phases"]["1"]["phases_ms"]


def test_the_page_says_degraded_and_takes_it_back(
    watch: live.Watch, page: record.Rank, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", live.logger.name)
    rids = [f"r{number}" for number in range(8)]
    for _ in range(72):
        run(rids, [0] * 8)
    told = live.info()
    assert told is not None and told["state"] == "degraded"
    assert page.alarm.decode() == f"degraded: {told['reason']}"
    for _ in range(144):
        run(rids, [3] * 8)
    assert page.alarm == b""
    said = [entry.getMessage() for entry in caplog.records]
    assert said == [
        f"Speculation is degraded: {said[0].partition(': ')[2]}",
        "Speculation is healthy",
    ]


def test_hot_sampling_is_counted_and_not_judged(watch: live.Watch) -> None:
    """Above a temperature of 1 nothing may be accepted of a draft that is well."""
    hot = SimpleNamespace(temperature=1.3, top_k=1 << 30)
    rids = [f"r{number}" for number in range(8)]
    for _ in range(144):
        run(rids, [0] * 8, params=hot)
    told = live.info()
    assert told is not None and told["state"] == "healthy"
    assert told["acceptance"]["verify_cycles"] == {"3": 144 * 8}
    warm = SimpleNamespace(temperature=1.0, top_k=1 << 30)
    for _ in range(72):
        run(rids, [0] * 8, params=hot)  # beside which others are judged all the same
        run(rids, [0] * 8, params=warm)
    assert watch.alarm.verdict.state == "degraded"


def test_greedy_is_judged_whatever_its_temperature(watch: live.Watch) -> None:
    rids = [f"r{number}" for number in range(8)]
    for _ in range(72):
        run(rids, [0] * 8, params=SimpleNamespace(temperature=1.3, top_k=1))
    assert watch.alarm.verdict.state == "degraded"


def test_a_rank_that_reports_nothing_leaves_its_sums(page: record.Rank) -> None:
    silent = live.Watch(scheduler(reports=False), WORKER, Level.PHASES, PROVEN)
    result = SimpleNamespace(
        num_correct_drafts_per_req_cpu=[2], is_plain_step=False, speculative_num_draft_tokens=4
    )
    for _ in range(16):
        silent.observe(batch(["a"]), result)
    assert silent.laps is None and silent.info()["acceptance"]["verify_cycles"] == {}
    assert list(page.tally_at) == [0, 16, 0, 0, 0, 0, 0, 0] and page.tally[1] == 32


def test_a_rank_that_accepts_other_numbers_is_an_alarm_of_the_one_that_reports(
    watch: live.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = record.from_environment()
    assert board is not None
    monkeypatch.setattr(construction, "_rank", board.claim("rank TP1"))
    other = live.Watch(scheduler(reports=False), WORKER, Level.PHASES, PROVEN)

    def both(correct: int, others: int) -> tuple[str, str]:
        for _ in range(16):
            given = {"is_plain_step": False, "speculative_num_draft_tokens": 4}
            other.observe(
                batch(["a"]), SimpleNamespace(num_correct_drafts_per_req_cpu=[others], **given)
            )
            run(["a"], [correct])
        return watch.info()["state"], watch.info()["reason"]

    assert both(2, 2) == ("healthy", "")
    state, reason = both(2, 1)
    assert state == "degraded" and "rank TP0 accepted 32 drafts and rank TP1 16" in reason
    for _ in range(7):
        assert both(2, 2)[0] == "degraded"
    assert both(2, 2) == ("healthy", "")


@pytest.mark.parametrize(
    ("self_test", "reason"),
    [
        ({}, "no self-test was run"),
        ({"state": "skipped", "reason": "the flag says so"}, "the flag says so"),
    ],
)
def test_what_the_self_test_did_not_show_is_unproven(
    page: record.Rank, self_test: Any, reason: str
) -> None:
    told = live.Watch(scheduler(), WORKER, Level.COUNTS, self_test).info()
    assert (told["state"], told["reason"]) == ("unproven", reason)


class Shown:
    """In place of the Prometheus metrics: what they were last told, and how often."""

    def __init__(self) -> None:
        self.cycles, self.told = 0, 0

    def counted(self, counts: Any) -> None:
        self.cycles, self.told = counts.cycles[3], self.told + 1

    def cycle(self, cycle: Any) -> None: ...


def test_prometheus_is_told_now_and_then_and_all_of_it_once_nothing_runs(
    watch: live.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An increment costs as much as all counting of a cycle; what is late must not be lost."""
    now = 100.0
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now))
    watch._metrics = shown = Shown()  # type: ignore[assignment]
    for _ in range(300):
        now += 0.01
        run(["a"], [1])
        assert shown.cycles >= watch.counts.cycles[3] - live.LATE / 0.01 - 1
    assert 3 < shown.told < 9, "in three seconds"
    for _ in range(3):  # the scheduler asks again and again
        told = shown.told
        live.idle()
        assert shown.cycles == 300
    assert shown.told == told
    run(["a"], [1])
    live.info()
    assert shown.cycles == 301, "who asks is shown what is"


def test_how_many_cycles_are_timed_is_told(page: record.Rank, watch: live.Watch) -> None:
    told = watch.info()
    assert told["phases_of_every"] == timed_every("cpu") == 1
    counting = live.Watch(scheduler(), WORKER, Level.COUNTS, PROVEN).info()
    assert counting["phases_of_every"] is None
    assert timed_every("cuda") == 17


def test_nothing_watched_is_nothing_said() -> None:
    assert live.info() is None and live.log_part() == ""
    live.observe(batch(["a"]), None)
    live.idle()
