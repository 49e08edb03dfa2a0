"""Muon beside AdamW, a start from the target's ends, and the loss with its own gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import small_target
from sglang_spec.train import checkpoint
from sglang_spec.train.checkpoint import CheckpointError
from sglang_spec.train.data import Answered
from sglang_spec.train.ends import Ends, read_ends
from sglang_spec.train.fit import fit, shape_of
from sglang_spec.train.model import Draft
from sglang_spec.train.optimizer import Optimizers
from sglang_spec.train.recipe import Recipe, load
from sglang_spec.train.target import Target
from unit.train.test_fit import NEVER, StopAt, quiet

torch = pytest.importorskip("torch")
from sglang_spec.train.cross_entropy import cross_entropy  # noqa: E402 - needs torch

CPU = torch.device("cpu")
MUON = ["fit.optimizer=muon", "draft.start=target", "fit.steps=12", "fit.learning_rate=0.002"]


@pytest.fixture
def recipe(tmp_path: Path, folder: Path, held_out: Path) -> Recipe:
    return load(small_target.recipe(tmp_path, folder, held_out), MUON)


@pytest.fixture(scope="module")
def ends(target: Target) -> Ends:
    return Ends(target.embedding, target.head, target.shape.config, target.final_norm)


@pytest.fixture
def source(target: Target, rows: list[dict[str, Any]], recipe: Recipe) -> Answered:
    return Answered(target, rows, recipe.draft.layers, 512, 1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 33, 5000])
def test_loss_and_gradient_are_those_of_torch(count: int, dtype: Any) -> None:
    """5,000 rows are more than one part."""
    draw = torch.Generator().manual_seed(count)
    logits = (3 * torch.randn(count, 70, generator=draw)).to(dtype).requires_grad_()
    before = logits.detach().clone()
    chance = (3 * torch.randn(count, 70, generator=draw)).softmax(-1)
    chance[1::7] = 0  # rows of which nothing is known
    made = cross_entropy(logits, chance)
    (3 * made).backward()
    assert logits.grad is not None
    gradient, logits.grad = logits.grad, None
    assert torch.equal(logits, before), "the logits were written to"
    wanted = torch.nn.functional.cross_entropy(logits.float(), chance)
    (3 * wanted).backward()
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)
    close = 1e-5 if dtype is torch.float32 else 1e-2  # bfloat16 keeps eight bits
    torch.testing.assert_close(gradient, logits.grad, rtol=close, atol=close / count)


@pytest.mark.full  # the compiler takes a minute on two cores
def test_compiled_it_is_the_same(target: Target) -> None:
    draw = torch.Generator().manual_seed(0)
    for shape in ((3, 24), (5, 40)):
        ids = torch.randint(64, 320, shape, generator=draw)
        plain, fast = target.states(ids, (1, 2, 4)), target.states(ids, (1, 2, 4), compiled=True)
        torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5)
        logits = torch.randn(shape[1], 70, generator=draw, requires_grad=True)
        chance = torch.randn(shape[1], 70, generator=draw).softmax(-1)
        grads = []
        for compiled in (False, True):
            cross_entropy(logits, chance, compiled).backward()
            grads.append(logits.grad)
            logits.grad = None
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-5, atol=1e-6)


def test_muon_turns_matrices_and_adamw_the_head(recipe: Recipe, ends: Ends) -> None:
    """Each parameter belongs to one; what Muon does to a matrix is orthogonal, up to its scale."""
    draft = Draft(shape_of(recipe, ends.config, 256), torch.arange(256))
    optimizer = Optimizers.of(draft, recipe.fit)
    named = dict(draft.named_parameters())
    draw = torch.Generator().manual_seed(1)
    before = {name: one.detach().clone() for name, one in named.items()}
    for one in named.values():
        one.grad = torch.randn(one.shape, generator=draw)
    optimizer.step()
    kept = {name: set(optimizer.moments(one)) for name, one in named.items()}
    inner = {n for n, p in named.items() if p.dim() == 2 and n != "lm_head.weight"}
    assert len(inner) == 8
    for name, keys in kept.items():
        wanted = {"momentum_buffer"} if name in inner else {"step", "exp_avg", "exp_avg_sq"}
        assert keys == wanted, name
    step = named["fc.weight"].detach() - before["fc.weight"]
    sizes = torch.linalg.svdvals(step / step.norm())
    assert sizes.max() < 2 * sizes.min(), "as Adam's steps are not"
    optimizer.set_rate(0.0)
    optimizer.zero_grad()
    assert all(one.grad is None for one in named.values())


def test_it_starts_with_the_ends_of_the_target(
    recipe: Recipe, source: Answered, ends: Ends, tmp_path: Path
) -> None:
    """With no learning rate it is still there at the end; drawn at random it is not."""
    still = replace(recipe, fit=replace(recipe.fit, steps=1, learning_rate=0.0))
    drawn = replace(still, draft=replace(still.draft, start="drawn"))
    for name, one in (("target", still), ("drawn", drawn)):
        assert fit(one, 0, source, ends, tmp_path / name, NEVER, quiet).done
        held = checkpoint.read(tmp_path / name)
        assert held is not None
        head, norm = held[1]["model.lm_head.weight"], held[1]["model.norm.weight"]
        same = torch.equal(head, ends.head[held[1]["tokens"]]), torch.equal(norm, ends.norm)
        assert same == (name == "target",) * 2


def test_with_muon_it_goes_on_bit_for_bit(
    recipe: Recipe, source: Answered, ends: Ends, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert fit(recipe, 0, source, ends, whole, NEVER, quiet).step == 12
    while not fit(recipe, 0, source, ends, parts, StopAt(7), quiet).done:  # type: ignore[arg-type]
        pass
    one, two = checkpoint.read(whole), checkpoint.read(parts)
    assert one is not None and two is not None and one[1].keys() == two[1].keys()
    assert "optimizer.fc.weight.momentum_buffer" in one[1]
    for name, tensor in one[1].items():
        assert torch.equal(tensor, two[1][name]), name
    other = replace(recipe, fit=replace(recipe.fit, optimizer="adamw"))
    with pytest.raises(CheckpointError, match="begun with optimizer = 'muon'"):
        fit(other, 0, source, ends, whole, NEVER, quiet)


def test_ends_are_read_from_a_folder(target: Target, folder: Path, ends: Ends) -> None:
    read = read_ends(folder, torch.float32, CPU)
    assert torch.equal(read.head, ends.head) and torch.equal(read.embedding, ends.embedding)
    assert read.norm is not None and torch.equal(read.norm, target.final_norm)
