"""The record of a launch: written by a process that is killed, read by the one that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening import construction, death, record, stages, verdict


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> record.Board:
    monkeypatch.delenv("SGLANG_SPEC_FAULT", raising=False)
    made = record.Board.create()
    monkeypatch.setattr(death, "_board", made)
    monkeypatch.setattr(construction, "_rank", None)
    yield made
    os.environ.pop(record.PATH_VARIABLE, None)


def _rank_that(tp_rank: int, stage: str, how: str) -> None:
    construction.begin(tp_rank)
    construction.enter(stage)
    if how == "raise":
        try:
            raise ValueError("it does not fit")
        except ValueError:
            construction.tell_parent(None)
            os._exit(1)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "ready":
        construction.ready()
    time.sleep(600)


def _start(tp_rank: int, stage: str, how: str) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(
        target=_rank_that, args=(tp_rank, stage, how)
    )
    process.start()
    return process


def _wait(board: record.Board, stage: str, count: int = 1) -> None:
    deadline = time.monotonic() + 120
    while sum(rank.stage_name == stage for rank in board.ranks()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    """Let the one who judges the ranks look at this time (monotonic seconds)."""
    monkeypatch.setattr(verdict, "time", SimpleNamespace(monotonic=lambda: now))


def test_an_exception_is_named_with_rank_stage_and_cause(board: record.Board) -> None:
    process = _start(1, "draft_pool", "raise")
    process.join(120)
    found = death.verdict([process])
    assert found is not None
    assert (found.rank, found.pid, found.stage) == ("rank TP1", process.pid, "draft_pool")
    assert found.cause == "ValueError: it does not fit"
    assert 'raise ValueError("it does not fit")' in found.traceback


def test_a_killed_rank_is_named_though_it_cannot_speak(board: record.Board) -> None:
    process = _start(0, "lm_head", "kill")
    process.join(120)
    found = death.verdict([process])
    assert found is not None and found.stage == "lm_head" and "SIGKILL" in found.cause


def test_the_signal_is_named_though_nobody_holds_the_process(board: record.Board) -> None:
    """As a server's signal handler asks; the code is still there for who waits for it."""
    process = _start(0, "lm_head", "kill")
    _wait(board, "lm_head")
    while record.alive(process.pid):
        time.sleep(0.01)
    found = death.verdict()
    assert found is not None and "SIGKILL" in found.cause
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_a_hung_rank_is_named_after_its_limit(
    board: record.Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_SPEC_STAGE_TIMEOUT", "300")
    process = _start(0, "draft_graphs", "hang")
    try:
        _wait(board, "draft_graphs")
        (rank,) = board.ranks()
        _at(monkeypatch, rank.entered + 299)
        assert death.verdict([process]) is None
        _at(monkeypatch, rank.entered + 301)
        with pytest.raises(death.EngineDeadError, match="stage draft_graphs: no progress"):
            death.check_launch([process])
        assert process.exitcode == -signal.SIGKILL
    finally:
        process.kill()
        process.join()


def test_of_two_hung_ranks_the_one_that_is_behind_is_named(
    board: record.Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_SPEC_STAGE_TIMEOUT", "0.2")
    processes = [_start(0, "draft_pool", "hang"), _start(1, "target_pool", "hang")]
    try:
        _wait(board, "draft_pool")
        _wait(board, "target_pool")
        time.sleep(0.3)
        found = death.verdict(processes)
        assert found is not None and found.rank == "rank TP1"
    finally:
        for process in processes:
            process.kill()
            process.join()


def test_the_cause_is_named_not_its_consequence(board: record.Board) -> None:
    """TP1 is killed, TP0 then fails because its peer went away: TP1 is the one."""
    killed = _start(1, "draft_pool", "kill")
    killed.join(120)
    other = board.claim("rank TP0")
    other.fail("RuntimeError: Connection closed by peer [127.0.0.1]:1", "")
    found = death.verdict([killed])
    assert found is not None and found.rank == "rank TP1"


def test_exit_code_0_is_in_order_only_if_the_rank_says_so(board: record.Board) -> None:
    def leave(close: bool) -> None:
        rank = board.claim("rank TP0")
        rank.status = record.Status.CLOSED if close else record.Status.READY
        os._exit(0)

    for close in (True, False):
        process = multiprocessing.get_context("fork").Process(target=leave, args=(close,))
        process.start()
        process.join(120)
        assert death.ended_in_order(process) is close


def test_a_ready_rank_has_no_limit(board: record.Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_SPEC_STAGE_TIMEOUT", "0.1")
    process = _start(0, "self_test", "ready")
    try:
        _wait(board, "serving")
        time.sleep(0.3)
        assert death.verdict([process]) is None
    finally:
        process.kill()
        process.join()


def test_nothing_of_the_record_is_left_in_the_file_system(board: record.Board) -> None:
    assert board.path == f"/proc/{os.getpid()}/fd/{board._fd}"
    assert os.readlink(board.path).startswith("/memfd:")


def test_a_page_holds_a_rank() -> None:
    import ctypes

    assert ctypes.sizeof(record.Rank) <= record.PAGE
    assert len(stages.ALL) < 256


def test_ranks_whose_watchdogs_bark_together_are_all_named(board: record.Board) -> None:
    """One hangs and one waits for it; which of the two speaks first says nothing."""
    for label in ("rank TP0", "rank TP1", "rank TP2"):
        rank = board.claim(label)
        rank.enter("serving")
        rank.pid = os.getpid() + int(label[-1])
    first, second, third = board.ranks()
    first.fail("no progress for 6 s", "")
    second.fail("no progress for 6 s", "")
    third.fail("RuntimeError: other", "")
    found = death.verdict()
    assert found is not None and found.rank == "rank TP0"
    assert "nor of rank TP1 in serving" in found.cause and "TP2" not in found.cause
