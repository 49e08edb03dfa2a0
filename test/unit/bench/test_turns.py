"""Conversations: a turn without the answer before it is an error, not a shorter prompt."""

from __future__ import annotations

import threading

import pytest
from sglang_spec.bench import turns


def test_a_turn_that_never_came_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.01)
    with pytest.raises(TimeoutError, match=r"stream 3: turn 1 had no answer within 0.01 s"):
        turns._await(threading.Event(), 3, 2, [])


def test_a_slow_server_ends_the_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once of one stream: the second turn waits for a first that takes too long."""
    answer = turns.Answer((1, 2), "", 0.1, 0, (), "length", {"cached_tokens": 0})
    asked: list[int] = []
    slow_enough = threading.Event()
    slow_enough.set()

    class Slow:
        def __init__(self, url: str) -> None:
            pass

        def generate(self, prompt: list[int], count: int) -> turns.Answer:
            asked.append(len(prompt))
            assert slow_enough.wait(120)
            return answer

        def close(self) -> None:
            pass

    monkeypatch.setattr(turns, "Client", Slow)
    plan = turns.Plan(streams=1, turns=2, opening=8, at_once=2)
    assert [turn.turn for turn in turns.play("http://x", plan)] == [0, 1]
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    # The thread that gave up is the one whose end lets the other go on.
    monkeypatch.setattr(threading, "excepthook", lambda _: slow_enough.set())
    slow_enough.clear()
    asked.clear()
    with pytest.raises(TimeoutError):
        turns.play("http://x", plan)
    assert asked == [8]  # the second turn was not asked without its history
