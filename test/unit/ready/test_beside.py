"""A process beside the ranks, a data-parallel controller or a detokenizer, ends as a rank does."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from threading import Thread

import psutil
import pytest
from sglang.srt.spec_hardening import beside, construction, death, record

NAME = "data-parallel controller"


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> record.Board:
    """An Engine's, made outside of the main thread: a SIGQUIT would kill this process."""
    monkeypatch.delenv("SGLANG_SPEC_FAULT", raising=False)
    made = record.Board.create(embedded=True, signal_owner=False)
    monkeypatch.setattr(death, "_board", made)
    monkeypatch.setattr(construction, "_rank", None)
    yield made
    os.environ.pop(record.PATH_VARIABLE, None)


def _process(run: Callable[[], None]) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(30)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process


def _fail() -> None:
    try:
        raise ValueError("no way to a rank")
    except ValueError:
        beside.fail(NAME, psutil.Process().parent())


def _fail_beside_a_thread_that_stays() -> None:
    Thread(target=time.sleep, args=(3600,)).start()
    _fail()


def _fail_in_a_thread() -> None:
    @beside.thread(NAME)
    def launch(rank: int) -> None:
        raise ValueError(f"no way to a rank {rank}")

    Thread(target=launch, args=(1,)).start()
    time.sleep(3600)


@pytest.mark.parametrize("run", [_fail, _fail_beside_a_thread_that_stays, _fail_in_a_thread])
def test_it_ends_by_its_name_with_a_code_and_kills_no_caller(
    board: record.Board, run: Callable[[], None]
) -> None:
    process = _process(run)
    assert process.exitcode == 1
    found = death.verdict([process])
    assert found is not None
    assert (found.rank, found.pid, found.stage) == (NAME, process.pid, "arguments")
    assert found.cause.startswith("ValueError: no way to a rank")
    assert "raise ValueError" in found.traceback
    assert not death.ended_in_order(process)


@pytest.mark.parametrize("ready", [True, False])
def test_it_serves_once_every_rank_does(board: record.Board, ready: bool) -> None:
    """Where it does not, the launch still waits, and raises what it finds."""
    for up in (True, ready):
        rank = board.claim("rank DP0 TP0")
        rank.was_ready = up
        rank.status = record.Status.READY if up else record.Status.BUILDING
    found = death.verdict([_process(_fail)])
    assert found is not None
    assert (found.rank, found.stage) == (NAME, "serving" if ready else "arguments")
    assert death._came_up() is ready


def test_a_rank_that_failed_first_is_the_one_to_name(board: record.Board) -> None:
    rank = board.claim("rank DP1 TP0")
    rank.fail("OSError: out of memory", "")
    found = death.verdict([_process(_fail)])
    assert found is not None and found.rank == "rank DP1 TP0"


@pytest.mark.parametrize("status", list(record.Status)[1:])
def test_exit_code_0_of_one_that_is_no_rank_is_in_order_while_its_ranks_are_well(
    board: record.Board, status: record.Status
) -> None:
    """A controller without a front end ends with 0 once its ranks have, however they did."""
    rank = board.claim("rank DP0 TP0")
    rank.pid = _process(lambda: None).pid  # gone
    rank.status = status
    assert death.ended_in_order(_process(lambda: None)) is (status is record.Status.CLOSED)
