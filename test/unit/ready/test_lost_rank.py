"""A rank of a data-parallel controller is no child of the server; its death ends the launch too."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening import death, engine_death, record


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[record.Board]:
    made = record.Board.create(embedded=True)
    monkeypatch.setattr(death, "_board", made)
    yield made
    os.environ.pop(record.PATH_VARIABLE, None)


def _elastic(monkeypatch: pytest.MonkeyPatch, backend: str | None) -> None:
    moe = SimpleNamespace(elastic_ep_backend=backend)
    monkeypatch.setattr(engine_death, "get_exec", lambda: SimpleNamespace(moe=moe))


def _engine() -> tuple[SimpleNamespace, SimpleNamespace]:
    manager = SimpleNamespace(
        engine_dead=None,
        engine_dead_event=asyncio.Event(),
        event_loop=None,
        _subprocess_watchdog=None,
    )
    return manager, SimpleNamespace(_processes=[], _names=[], engine_manager=manager)


def _lose(board: record.Board, status: record.Status) -> None:
    """A rank that served and whose process is gone."""
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    process.start()
    process.join()
    rank = board.claim("rank DP1 TP0")
    rank.enter("serving")
    rank.pid, rank.status = process.pid, status


def test_a_killed_process_that_is_no_rank_is_the_end_by_name(board: record.Board) -> None:
    manager, watchdog = _engine()
    board.claim("rank TP0").status = record.Status.READY
    processes = [multiprocessing.get_context("fork").Process(target=signal.pause) for _ in range(2)]
    for process in processes:
        process.start()
    processes[1].kill()
    processes[1].join()
    watchdog._processes, watchdog._names = processes, ["scheduler_0", "detokenizer"]
    manager._subprocess_watchdog = watchdog
    assert engine_death.on_dead_child(watchdog)
    said = rf"detokenizer \(pid {processes[1].pid}\) failed: its process was ended by SIGKILL"
    assert re.match(said, str(manager.engine_dead))
    assert not any(process.is_alive() for process in processes)


def test_a_lost_rank_is_the_end_by_name(
    board: record.Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    _elastic(monkeypatch, None)
    manager, watchdog = _engine()
    board.claim("rank DP0 TP0").status = record.Status.READY
    assert not engine_death.on_lost_rank(watchdog)
    _lose(board, record.Status.READY)
    assert engine_death.on_lost_rank(watchdog)
    assert "rank DP1 TP0" in str(manager.engine_dead) and "stage serving" in str(
        manager.engine_dead
    )


@pytest.mark.parametrize("status", [record.Status.CLOSED, record.Status.BUILDING])
def test_a_rank_that_left_or_never_served_is_not_lost(
    board: record.Board, monkeypatch: pytest.MonkeyPatch, status: record.Status
) -> None:
    """One that is still built is waited for by the launch, which looks itself."""
    _elastic(monkeypatch, None)
    manager, watchdog = _engine()
    _lose(board, status)
    assert not engine_death.on_lost_rank(watchdog) and manager.engine_dead is None


def test_an_elastic_backend_goes_on(board: record.Board, monkeypatch: pytest.MonkeyPatch) -> None:
    _elastic(monkeypatch, "mooncake")
    manager, watchdog = _engine()
    _lose(board, record.Status.READY)
    assert not engine_death.on_lost_rank(watchdog) and manager.engine_dead is None


def test_a_later_launch_of_the_same_process_is_not_this_ones(
    board: record.Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    _elastic(monkeypatch, None)
    manager, watchdog = _engine()
    assert not engine_death.on_lost_rank(watchdog)
    later = record.Board.create(embedded=True)
    monkeypatch.setattr(death, "_board", later)
    _lose(later, record.Status.READY)
    assert not engine_death.on_lost_rank(watchdog) and manager.engine_dead is None
