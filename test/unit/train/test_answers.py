"""Answers: batch by batch, resumable, in lines that `capture dump` reads too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import small_target
from sglang_spec.capture.prompts import read_prompts
from sglang_spec.train import answers
from sglang_spec.train.chat import Chat
from sglang_spec.train.recipe import load
from sglang_spec.train.stop import Stop

torch = pytest.importorskip("torch")
PROMPTS = [("chat", f"t{64 + n} t{70 + n} t{90 - n}") for n in range(20)]


class After(Stop):
    """Stops when so many batches have been told of."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def say(self, text: str) -> None:
        self.left -= text.startswith("batch")

    @property
    def reason(self) -> str:
        return "" if self.left > 0 else "enough"


def test_stopped_and_gone_on(folder: Path, held_out: Path, tmp_path: Path) -> None:
    recipe = load(small_target.recipe(tmp_path, folder, held_out), ["answers.rows=8"])
    stop = After(2)
    made = answers.make(recipe, folder, PROMPTS, tmp_path / "a", stop, stop.say)
    assert not made.complete and len(list((tmp_path / "a").glob("0*.jsonl"))) == 2
    first = answers.read(tmp_path / "a")
    assert made.answers == len(first)
    stop = After(99)
    made = answers.make(recipe, folder, PROMPTS, tmp_path / "a", stop, stop.say)
    rows = answers.read(tmp_path / "a")
    assert made.complete and made.answers == len(rows) >= 20 and rows[: len(first)] == first
    assert stop.left > 90, "finished batches were made again"
    assert made.tokens == sum(len(row["answer_ids"]) for row in rows)
    assert {row["temperature"] for row in rows} == {0.0, 0.8}
    assert {row["kind"] for row in rows} <= {"chat", "self"}
    chat = Chat(folder)
    assert all(row["prompt_ids"][: len(chat.before)] == chat.before for row in rows)
    one = sorted((tmp_path / "a").glob("0*.jsonl"))[0]
    (listed, *_) = read_prompts(one, folder)
    assert listed.loss_runs == (
        (0, len(rows[0]["prompt_ids"])),
        (1, len(rows[0]["answer_ids"])),
    )


def test_minutes_end_it(folder: Path, held_out: Path, tmp_path: Path) -> None:
    path = small_target.recipe(tmp_path, folder, held_out)
    recipe = load(path, ["answers.rows=8", "answers.minutes=1e-9", "answers.self_written=0"])
    made = answers.make(recipe, folder, PROMPTS, tmp_path / "a", Stop(), lambda text: None)
    assert made.complete and made.answers == 0
    assert json.loads((tmp_path / "a" / answers.SUMMARY).read_text())["complete"]
    with pytest.raises(answers.AnswersError, match="run `sglang-spec train answers` first"):
        answers.read(tmp_path / "a")


def test_a_clock_and_a_signal_stop() -> None:
    import os
    import signal

    with Stop() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop and stop.interrupted and stop.reason == "SIGTERM"
    late = Stop(1e-9)
    assert late and not late.interrupted
