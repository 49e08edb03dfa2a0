"""The thread that writes captured states: whole prompts only, in order, never too much waiting."""

from __future__ import annotations

import itertools
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from sglang_spec.capture.tensorfile import TensorFile
from sglang_spec.hardening.capture_writer import Writer, sample_file

torch: Any = pytest.importorskip("torch")
SLOTS, HIDDEN = 3, 8


def _chunk(tokens: range) -> tuple[Any, Any]:
    """States whose values tell the token, and the last states."""
    column = torch.tensor(list(tokens), dtype=torch.bfloat16)[:, None]
    return column.expand(-1, SLOTS * HIDDEN).clone(), -column.expand(-1, HIDDEN).clone()


def _await(path: Path) -> TensorFile:
    deadline = time.monotonic() + 60
    while not path.is_file():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.005)
    return TensorFile(path)


@pytest.mark.parametrize("cuts", [(0, 12), (0, 5, 12), (0, 4, 8, 12)], ids=len)
def test_chunks_are_joined_in_order(cuts: tuple[int, ...], tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    ids = list(range(100, 112))
    for begin, end in itertools.pairwise(cuts):
        writer.take(7, ids, *_chunk(range(begin, end)))
    held = _await(tmp_path / sample_file(7))
    assert held.read("input_ids").tolist() == ids
    assert held.read("states")[:, 0].tolist() == list(range(12))
    assert held.read("last_hidden_states")[:, -1].tolist() == [-n for n in range(12)]


def test_prompts_whose_chunks_alternate(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for chunk in (range(3), range(3, 6)):
        for number in (1, 2):
            writer.take(number, [number] * 6, *_chunk(chunk))
    for number in (1, 2):
        held = _await(tmp_path / sample_file(number))
        assert held.read("input_ids").tolist() == [number] * 6
        assert held.read("states")[:, 0].tolist() == list(range(6))


def test_without_last_states(tmp_path: Path) -> None:
    Writer(tmp_path).take(0, [1, 2], _chunk(range(2))[0], None)
    assert sorted(_await(tmp_path / sample_file(0)).names()) == ["input_ids", "states"]


def test_more_states_than_tokens_are_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(tmp_path)
    with caplog.at_level(logging.ERROR):
        writer.take(3, [1, 2], *_chunk(range(3)))
    assert "sample 3 gave 3 states for 2 tokens" in caplog.text
    writer.take(4, [1, 2], *_chunk(range(2)))
    _await(tmp_path / sample_file(4))
    assert not (tmp_path / sample_file(3)).exists()


def test_the_scheduler_waits_for_the_disk(tmp_path: Path) -> None:
    """With room for one, a prompt is taken when the one before it is written."""
    writer = Writer(tmp_path, queue_bytes=1)
    for number in range(6):
        writer.take(number, [1, 2], *_chunk(range(2)))
        if number:
            assert (tmp_path / sample_file(number - 1)).is_file()


def test_a_disk_that_refuses_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "dump"
    folder.write_text("a file stands here")
    writer = Writer(folder, queue_bytes=1)
    with caplog.at_level(logging.ERROR):
        for number in range(3):  # the third is only taken when the second was given up
            writer.take(number, [1, 2], *_chunk(range(2)))
    assert "00000001.safetensors cannot be written" in caplog.text
