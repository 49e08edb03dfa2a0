"""Training on a GPU: the host does not wait for the device, step after step."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from kit import small_target
from sglang_spec.train import unroll
from sglang_spec.train.data import Answered
from sglang_spec.train.fit import KERNELS, shape_of
from sglang_spec.train.model import Draft
from sglang_spec.train.optimizer import Optimizers
from sglang_spec.train.recipe import load
from sglang_spec.train.target import Target
from torch.nn.attention import sdpa_kernel


def test_a_step_never_waits(tmp_path: Path) -> None:
    """Every wait leaves the device with an empty queue: a third of a step's time, once."""
    cuda = torch.device("cuda")
    folder = small_target.write(tmp_path / "target")
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text('{"kind": "a", "prompt_ids": [64], "greedy_answer_ids": [65]}\n')
    options = ["fit.optimizer=muon", "draft.start=target"]
    recipe = load(small_target.recipe(tmp_path, folder, held_out), options)
    target, draw = Target(folder, torch.bfloat16, cuda), random.Random(0)
    rows = [
        {"prompt_ids": drawn[:9], "answer_ids": drawn[9:]}
        for drawn in ([draw.randrange(64, 320) for _ in range(40)] for _ in range(32))
    ]
    source = Answered(target, rows, recipe.draft.layers, 512, 1000)
    tokens = torch.arange(64, 320)
    draft = Draft(shape_of(recipe, target.shape.config, len(tokens)), tokens, 0).to(cuda)
    draft.take_ends(target.head, target.final_norm)
    optimizer = Optimizers.of(draft, recipe.fit)
    before = draft.fc.weight.detach().clone()

    def step(numbers: list[int]) -> None:
        batch = source.load(numbers)
        want = unroll.wanted(batch, target.head, draft.tokens, recipe.fit.unroll)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            total, _ = unroll.loss(draft, target.embedding, batch, want, recipe.fit)
        total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(draft.parameters(), recipe.fit.clip)
        optimizer.step()

    order = source.order(0)
    with sdpa_kernel(KERNELS):
        step(order[0])  # the first one allocates and loads kernels
        torch.cuda.set_sync_debug_mode("error")
        try:
            for numbers in order[1:]:
                step(numbers)
            with pytest.raises(RuntimeError, match="synchron"):
                draft.fc.weight.sum().item()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len(order) > 2 and not torch.equal(before, draft.fc.weight)
