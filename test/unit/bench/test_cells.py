"""The loads of a run, and prompts of exact length."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sglang_spec.bench import corpus
from sglang_spec.bench.cells import Cell, CellError, grid


def test_a_grid_has_every_context_with_every_load() -> None:
    cells = grid([64, 512], [1, 8], [2.5], None, 32)
    assert [cell.key for cell in cells] == ["64x1", "64x8", "512x1", "512x8", "64@2.5", "512@2.5"]
    assert [cell.requests for cell in cells] == [8, 24, 8, 24, 16, 16]
    assert cells[1].kv_tokens == 8 * (64 + 32 + 16) and cells[4].kv_tokens == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([64], [8], [], 4, 32), "4 requests cannot run 8 at a time"),
        (([64], [0], [], 4, 32), "at least 1"),
        (([1], [1], [], 4, 32), "1 prompt tokens"),
        (([64], [1], [], 4, 4), "4 new tokens"),
        (([64], [], [], None, 32), "nothing to measure"),
        (([64], [], [0.0], None, 32), "above 0"),
    ],
)
def test_a_load_that_cannot_be_measured_is_refused(arguments: tuple, says: str) -> None:
    with pytest.raises(CellError, match=says):
        grid(*arguments)


def test_a_cell_is_closed_or_open() -> None:
    with pytest.raises(CellError, match="not both"):
        Cell(64, 1, 2.0, 4, 32)


@pytest.mark.parametrize("length", [30, 256, 2000])
def test_prompts_have_exactly_the_length_and_end_as_texts_end(length: int) -> None:
    texts = corpus.of_embedded()
    made = texts.prompts(6, length, seed=3)
    assert {len(ids) for ids in made} == {length}
    assert made == texts.prompts(6, length, seed=3)
    assert made[:2] == texts.prompts(2, length, seed=3)
    assert made != texts.prompts(6, length, seed=4)
    for number, ids in enumerate(made):
        text = texts.rows[(3 + number) % len(texts.rows)]
        assert ids[-min(length, len(text)) :] == list(text[-length:])


def test_prompts_of_the_tiny_pair_open_with_its_bos_and_have_no_other() -> None:
    for ids in corpus.of_tiny().prompts(5, 100, seed=0):
        assert ids[0] == 0 and min(ids[1:]) >= 64 and len(ids) == 100


def test_random_ids_are_refused_and_text_is_not() -> None:
    dice = random.Random(0)
    rows = [[dice.randrange(128_000) for _ in range(500)] for _ in range(8)]
    with pytest.raises(corpus.CorpusError, match="acceptance on random ids misleads"):
        corpus.checked(rows, "made-up")
    assert len(corpus.checked(corpus.of_embedded().rows, "text").rows) > 80


def test_a_file_of_texts_is_read_and_one_without_is_named(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"input_ids": [1, 2, 3, n]}) + "\n" for n in range(5)))
    assert len(corpus.of_file(path, tmp_path).rows) == 5
    path.write_text('{"input_ids": [1]}\n' * 9)
    with pytest.raises(corpus.CorpusError, match="1 different texts"):
        corpus.of_file(path, tmp_path)
    path.write_text("no JSON\n")
    with pytest.raises(corpus.CorpusError, match=r"texts.jsonl:1"):
        corpus.of_file(path, tmp_path)
