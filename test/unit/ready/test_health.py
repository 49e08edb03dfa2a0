"""The rules of health: red with a reason, green again by a decode and by nothing else."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sglang.srt.managers.tokenizer_manager import ServerStatus
from sglang.srt.spec_hardening import construction, cycle, death, health, record

DECODE = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=lambda: False))


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The front end of a launch with one ready rank: this process."""
    board = record.Board.create()
    monkeypatch.setattr(death, "_board", board)
    monkeypatch.setattr(construction, "_rank", board.claim("rank TP0"))
    monkeypatch.setattr(health, "watched", lambda: True)
    monkeypatch.setattr(health, "bound", lambda: 0.2)
    construction._rank.status = record.Status.READY
    cycle.start(decoded=True)
    yield SimpleNamespace(server_status=ServerStatus.Up)
    os.environ.pop(record.PATH_VARIABLE, None)


def test_a_recent_decode_is_green_without_asking(manager: SimpleNamespace) -> None:
    answer = health.answer(manager)
    assert answer is not None and answer.status_code == 200


def test_without_a_recent_decode_it_has_to_ask(
    manager: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "window", lambda: 0.0)
    assert health.answer(manager) is None
    assert health.probe_tokens()["max_new_tokens"] == 2  # one of the prefill, one of a verify


def test_a_verify_that_does_not_return_is_red_with_the_reason(manager: SimpleNamespace) -> None:
    cycle.launched(DECODE)
    cycle.enter("verify")
    time.sleep(0.3)
    answer = health.answer(manager)
    assert answer is not None and answer.status_code == 503
    assert b"no verify has returned" in answer.body and b"(verify)" in answer.body
    assert health.trouble(manager) is not None
    assert manager.server_status == ServerStatus.UnHealthy


def test_only_a_decode_makes_it_green_again(manager: SimpleNamespace) -> None:
    cycle.launched(DECODE)
    time.sleep(0.3)
    health.answer(manager)
    assert not health.may_be_green(manager)  # a late message changes nothing
    manager.server_status = ServerStatus.UnHealthy
    cycle.completed()
    answer = health.answer(manager)
    assert answer is not None and answer.status_code == 200
    assert manager.server_status == ServerStatus.Up


def test_red_by_a_probe_without_an_answer_stays_red_without_a_decode(
    manager: SimpleNamespace,
) -> None:
    """Upstream's own probe gave up; nothing is out, the last decode is older than that."""
    manager.server_status = ServerStatus.UnHealthy
    assert health.answer(manager) is None
    assert not health.may_be_green(manager)
    cycle.launched(DECODE)
    cycle.completed()
    assert health.may_be_green(manager)


def test_two_verifies_out_and_one_back_is_not_idle(manager: SimpleNamespace) -> None:
    """The overlapped loop launches the next one before the result of the last is handled."""
    cycle.launched(DECODE)
    cycle.launched(DECODE)
    cycle.completed()
    time.sleep(0.3)
    assert health.trouble(manager) is not None
    cycle.completed()
    assert health.trouble(manager) is None


def test_a_rank_that_is_gone_is_red(manager: SimpleNamespace) -> None:
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    process.start()
    process.join()
    gone = death.board().claim("rank TP1")
    gone.pid, gone.status = process.pid, record.Status.READY
    gone.enter("serving")
    assert health.trouble(manager) == (
        f"rank TP1 (pid {process.pid}) is gone, last seen in stage serving"
    )
    assert health.follower().status_code == 503


def test_a_rank_that_failed_is_red_with_its_cause(manager: SimpleNamespace) -> None:
    death.board().claim("rank TP1").fail("SelfTestError: no", "")
    assert "SelfTestError: no" in health.trouble(manager)


def test_a_degraded_server_is_green_and_says_why(manager: SimpleNamespace) -> None:
    healthy = health.answer(manager)
    assert healthy is not None and (healthy.status_code, healthy.body) == (200, b"")
    assert construction._rank is not None
    construction._rank.raise_alarm("degraded: accept length 1.00 over 512 verify cycles")
    for answer in (health.answer(manager), health.follower(), health.well()):
        assert answer is not None and answer.status_code == 200
        assert answer.body == b"degraded: accept length 1.00 over 512 verify cycles"
    construction._rank.raise_alarm("")
    assert health.well().body == b""


def test_a_failed_ranks_cause_is_kept_when_another_is_gone(manager: SimpleNamespace) -> None:
    board = death.board()
    assert board is not None
    ended = multiprocessing.get_context("spawn").Process(target=str)
    ended.start()
    ended.join()
    first, second = board.claim("rank TP1"), board.claim("rank TP2")
    first.status, first.cause = record.Status.FAILED, b"out of memory"
    second.status, second.pid = record.Status.READY, ended.pid
    trouble = health.pulse(board, 1.0).trouble
    assert trouble is not None and trouble.endswith("out of memory")


@pytest.mark.parametrize(("layers", "expected"), [(False, True), (True, False)])
def test_a_worker_of_several_draft_layers_keeps_no_pulse(
    layers: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = record.Board.create()
    monkeypatch.setattr(death, "_board", board)
    spec = SimpleNamespace(speculative_algorithm="EAGLE", enable_multi_layer_eagle=layers)
    monkeypatch.setattr(health, "get_spec", lambda: spec)
    monkeypatch.setattr(health, "get_disagg", lambda: SimpleNamespace(disaggregation_mode="null"))
    monkeypatch.setattr(health, "get_parallel", lambda: SimpleNamespace(pp_size=1))
    assert health.watched() is expected
    os.environ.pop(record.PATH_VARIABLE, None)
