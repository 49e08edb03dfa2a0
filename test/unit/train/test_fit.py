"""Training: it learns, it goes on bit for bit, and what it leaves behind fits together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit import small_target
from sglang_spec.capture.dump import open_dump
from sglang_spec.capture.standardize import standardize
from sglang_spec.hardening import contract
from sglang_spec.train import checkpoint, heldout
from sglang_spec.train.checkpoint import CheckpointError
from sglang_spec.train.data import Answered, Captured, DataError, coverage, grouped, vocabulary
from sglang_spec.train.ends import Ends, read_ends
from sglang_spec.train.evaluate import prepare
from sglang_spec.train.export import ExportError, export, mark
from sglang_spec.train.fit import Watch, fit
from sglang_spec.train.recipe import Recipe, load
from sglang_spec.train.target import Target

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")


class StopAt:
    """Asks a run to stop at its n-th question, as Ctrl-C would."""

    reason, interrupted = "enough", True

    def __init__(self, after: int) -> None:
        self.left = after

    def __bool__(self) -> bool:
        self.left -= 1
        return self.left < 0


NEVER: Any = StopAt(10**9)


def quiet(text: str) -> None:
    """No one listens."""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, folder: Path, held_out: Path) -> Recipe:
    path = small_target.recipe(tmp_path_factory.mktemp("recipe"), folder, held_out)
    return load(path)


@pytest.fixture(scope="module")
def ends(target: Target) -> Ends:
    return Ends(target.embedding, target.head, target.shape.config)


@pytest.fixture(scope="module")
def source(target: Target, rows: list[dict[str, Any]], recipe: Recipe) -> Answered:
    return Answered(target, rows, recipe.draft.layers, 512, 1000)


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
    recipe: Recipe,
    source: Answered,
    ends: Ends,
    target: Target,
    held_out: Path,
) -> Path:
    """One run of 30 steps without a break."""
    run = tmp_path_factory.mktemp("run") / "seed-0"
    rows = heldout.read(held_out)
    watch = Watch(rows, list(prepare(target, rows, recipe.draft.layers)))
    state = fit(recipe, 0, source, ends, run, NEVER, quiet, watch)
    assert state.done and state.step == 30
    return run


def test_it_learns(
    target: Target, rows: list[dict[str, Any]], ends: Ends, tmp_path: Path, folder: Path,
    held_out: Path,
) -> None:  # fmt: skip
    """From guessing among 256 tokens to knowing most: every step of the chain."""
    path = small_target.recipe(tmp_path, folder, held_out)
    small = Answered(target, rows[:24], (1, 2, 4), 256, 1000)
    longer = load(path, ["fit.steps=100", "fit.learning_rate=0.01", "fit.unroll=2"])
    assert fit(longer, 0, small, ends, tmp_path / "run", NEVER, quiet).done
    lines = [line for line in checkpoint.lines(tmp_path / "run") if "loss" in line]
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    assert min(lines[-1]["right"]) > 0.3
    assert [line["step"] for line in lines] == [50, 100]


def test_it_goes_on_bit_for_bit(
    recipe: Recipe, source: Answered, ends: Ends, trained: Path, tmp_path: Path
) -> None:
    """Stopped three times, once in the middle of a pass; every tensor is the same in the end."""
    run, calls = tmp_path / "seed-0", 0
    while not (state := fit(recipe, 0, source, ends, run, StopAt(9), quiet)).done:  # type: ignore[arg-type]
        calls += 1
    assert calls >= 3 and state.step == 30
    one, two = checkpoint.read(trained), checkpoint.read(run)
    assert one is not None and two is not None
    assert one[1].keys() == two[1].keys()
    assert any(name.startswith("optimizer.") for name in one[1])
    for name, tensor in one[1].items():
        assert torch.equal(tensor, two[1][name]), name


def test_another_seed_is_another_draft(
    recipe: Recipe, source: Answered, ends: Ends, trained: Path, tmp_path: Path
) -> None:
    """The control of the test above."""
    fit(recipe, 1, source, ends, tmp_path / "run", NEVER, quiet)
    one, two = checkpoint.read(trained), checkpoint.read(tmp_path / "run")
    assert one is not None and two is not None
    assert not torch.equal(one[1]["model.fc.weight"], two[1]["model.fc.weight"])


def test_its_log_has_curves(trained: Path) -> None:
    lines = checkpoint.lines(trained)
    assert [line["step"] for line in lines if "accept_length" in line] == [10, 20, 30, 30]
    assert all(1 <= line["accept_length"] <= 4 for line in lines if "accept_length" in line)
    log = checkpoint.Log(trained.parent / "copy", 10)
    log.add({"step": 10})
    with (trained.parent / "copy/log.jsonl").open("a") as out:
        out.write('{"step": 11, "lo')
    assert checkpoint.lines(trained.parent / "copy") == [{"step": 10}]


def test_other_settings_are_refused(
    recipe: Recipe, source: Answered, ends: Ends, trained: Path, folder: Path, held_out: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    path = small_target.recipe(tmp_path, folder, held_out)
    other = load(path, ["draft.vocabulary=128"])
    with pytest.raises(CheckpointError, match="begun with vocabulary = 256, the recipe has 128"):
        fit(other, 0, source, ends, trained, NEVER, quiet)


def test_exported_it_passes_the_contract(
    recipe: Recipe, target: Target, ends: Ends, trained: Path, tmp_path: Path, held_out: Path
) -> None:
    draft = export(recipe, trained, target.folder, ends, tmp_path / "draft")
    report = contract.check_pair(str(target.folder), str(draft), contract.Settings(tp_size=8))
    assert report.accepted, report.error_text()
    assert [slot.loop_index for slot in report.slots] == [2, 3, 5]
    rows = heldout.read(held_out)
    path = mark(target, draft, recipe.draft.layers, [row.tokens for row in rows[:2]], tmp_path)
    marks = json.loads(path.read_text())["prompts"]
    assert [slot["takes"] for slot in marks[0]["slots"]] == [
        "output of layer 1",
        "output of layer 2",
        "output of layer 4",
    ]
    assert not list(tmp_path.glob(".*")), "a half-made folder was left"


def test_a_draft_that_is_too_large_is_refused(
    target: Target, ends: Ends, trained: Path, folder: Path, held_out: Path, tmp_path: Path
) -> None:
    path = small_target.recipe(tmp_path, folder, held_out)
    small = load(path, ["export.megabytes=0.01"])
    with pytest.raises(ExportError, match=r"make draft\.vocabulary or draft\.intermediate smaller"):
        export(small, trained, target.folder, ends, tmp_path / "draft")
    assert not (tmp_path / "draft").exists()
    with pytest.raises(ExportError, match="holds no checkpoint"):
        export(small, tmp_path, target.folder, ends, tmp_path / "draft")


def test_captured_data_is_the_same_data(
    recipe: Recipe, target: Target, trained: Path, ends: Ends, tmp_path: Path, held_out: Path
) -> None:
    """A dump, standardized, gives the states and positions that the target computes itself."""
    rows = heldout.read(held_out)
    draft = export(recipe, trained, target.folder, ends, tmp_path / "draft")
    mark(target, draft, recipe.draft.layers, [row.tokens for row in rows], tmp_path)
    listed = tmp_path / "training/samples.jsonl"
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    for line, row in zip(lines, rows, strict=True):
        line["loss_runs"] = [[0, len(row.prompt)], [1, len(row.answer)]]
    listed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert standardize(open_dump(tmp_path / "training"), tmp_path / "data").written == len(rows)
    captured = Captured(tmp_path / "data", recipe.draft.layers, 256, CPU)
    given = [{"prompt_ids": row.prompt, "answer_ids": row.answer} for row in rows]
    answered = Answered(target, given, recipe.draft.layers, 256, 1000)
    assert captured.counts() == answered.counts()
    assert captured.order(3) == answered.order(3)
    for numbers in captured.order(3):
        one, two = captured.load(numbers), answered.load(numbers)
        assert torch.equal(one.ids, two.ids) and torch.equal(one.learn, two.learn)
        real = one.ids != 0
        torch.testing.assert_close(one.states[real], two.states[real], rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(one.last[real], two.last[real], rtol=1e-2, atol=1e-2)
    own = read_ends(target.folder, torch.float32, CPU)
    assert torch.equal(own.head, ends.head) and torch.equal(own.embedding, ends.embedding)
    assert fit(recipe, 0, captured, own, tmp_path / "run", NEVER, quiet).done
    with pytest.raises(DataError, match=r"capture those, or change draft.layers"):
        Captured(tmp_path / "data", [1, 2, 5], 256, CPU)


def test_groups() -> None:
    lengths = [5, 100, 7, 30, 31, 99, 8, 6]
    groups = grouped(lengths, 100, 0)
    assert sorted(number for group in groups for number in group) == list(range(8))
    assert all(len(g) == 1 or len(g) * max(lengths[n] for n in g) <= 100 for g in groups)
    assert groups == grouped(lengths, 100, 0) != grouped(lengths, 100, 1)


def test_vocabulary() -> None:
    counts = Counter({5: 9, 3: 4, 7: 4, 1: 1})
    assert vocabulary(counts, 3, 10, [9]) == [3, 5, 9]
    assert vocabulary(counts, 0, 4, []) == [0, 1, 2, 3]
    assert vocabulary(counts, 6, 10, []) == [0, 1, 2, 3, 5, 7]
    assert coverage(counts, [5, 3]) == 13 / 18
