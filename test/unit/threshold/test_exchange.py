"""A refreshed table reaches every rank among the requests of one iteration."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from sglang.srt.managers import scheduler as upstream
from sglang.srt.spec_hardening.threshold import exchange
from sglang.srt.spec_hardening.threshold.acceptance import Acceptance
from sglang.srt.spec_hardening.threshold.auto import AutoDecider
from sglang.srt.spec_hardening.threshold.cost import PHASES, CostTable, Line
from sglang.srt.spec_hardening.threshold.worker import BatchThreshold
from sglang.utils import TypeBasedDispatcher


def table() -> CostTable:
    return CostTable(4, (Line(1000, (1, 8), {phase: (1e-3, 2e-3) for phase in PHASES}),))


def rank(number: int) -> Any:
    """A scheduler as far as the exchange knows it."""
    threshold = SimpleNamespace(decider=AutoDecider(Acceptance(3)), exchange=None)
    threshold.decider.begin(table())
    made = SimpleNamespace(
        draft_worker=SimpleNamespace(threshold=threshold),
        device="cpu",
        tp_group=SimpleNamespace(rank_in_group=number, world_size=2),
        _request_dispatcher=TypeBasedDispatcher([(str, str.upper)]),
    )
    exchange.attach(made)
    return made


def slow(scheduler: Any) -> None:
    """Cycles that take twice as long, until it is time to look."""
    drift = scheduler.draft_worker.threshold.exchange.sampler.drift
    for _ in range(drift.pace.every):
        drift.batch()
        drift.add(True, 8, 1000, 2 * drift.start.cycle_seconds(8, 1000))


def test_rank_0_offers_a_table_until_it_has_arrived() -> None:
    first, second = rank(0), rank(1)
    assert exchange.due(first) == [] and exchange.due(second) == []
    slow(first)
    offered = exchange.due(first)
    assert len(offered) == 1 and exchange.due(first) == offered, "an iteration may send nothing"
    for one in (first, second):
        (told,) = pickle.loads(pickle.dumps(offered))
        assert one._request_dispatcher(told) is None, "nobody waits for an answer"
    assert exchange.due(first) == []
    deciders = [one.draft_worker.threshold.decider for one in (first, second)]
    assert deciders[0].table == deciders[1].table != table()
    assert [decider.refreshes.times for decider in deciders] == [1, 1]
    assert deciders[1].details() == deciders[0].details()
    assert first._request_dispatcher("a") == "A"


def test_what_server_info_shows_of_it() -> None:
    first = rank(0)
    decider = first.draft_worker.threshold.decider
    shown = decider.details()
    assert (shown["refreshes"], shown["batches_since_refresh"]) == (0, None)
    assert shown["milliseconds"][0]["cycle_to_start"] == [1.0, 1.0]
    slow(first)
    first._request_dispatcher(exchange.due(first)[0])
    decider.decide(8, 8000)
    shown = decider.details()
    assert (shown["refreshes"], shown["batches_since_refresh"]) == (1, 1)
    assert shown["milliseconds"][0]["cycle_to_start"] == [1.5, 1.5]
    assert shown["milliseconds"][0]["step_to_start"] == [1.0, 1.0]
    assert decider.drift == "plain steps take 1.00 times as long as at start, cycles 1.50"


def test_rank_0_is_told_of_prefills() -> None:
    """What lies between two decode batches then is no part of either."""
    nothing = MagicMock()
    told = BatchThreshold(nothing, nothing, nothing, nothing, nothing, exchange=MagicMock())
    told.prefilled(MagicMock())
    assert told.exchange is not None
    told.exchange.sampler.prefilled.assert_called_once_with()  # type: ignore[attr-defined]


@pytest.mark.parametrize("draft_worker", [None, SimpleNamespace(threshold=None)])
def test_a_server_without_auto_offers_nothing(draft_worker: Any) -> None:
    assert exchange.due(SimpleNamespace(draft_worker=draft_worker)) == []


@pytest.mark.parametrize("first", [True, False])
def test_it_travels_with_the_requests_that_rank_0_received(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By upstream's own loop; the other ranks add nothing of their own."""
    place = SimpleNamespace(pp_rank=0, attn_tp_rank=0 if first else 1, attn_cp_rank=0)
    monkeypatch.setattr(upstream, "get_parallel", lambda: place)
    monkeypatch.setattr(exchange, "due", lambda scheduler: ["a table"])
    scheduler = MagicMock(_deferred_input_requests=[])
    scheduler._poll_timeout_aborts.return_value = ["an abort"]
    scheduler.request_receiver.recv_requests.return_value = []
    upstream.Scheduler.ingest_requests(scheduler)
    (call,) = scheduler.request_receiver.recv_requests.call_args_list
    assert call.kwargs["local_reqs"] == (["an abort", "a table"] if first else [])
