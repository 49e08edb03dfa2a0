"""The wrong-capture incident on the embedded draft, as exact accept counts on fixed prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sglang_spec.models import Pair
from sglang_spec.models.embedded import held_out as embedded_held_out
from sglang_spec.train import heldout, pinned
from sglang_spec.train.model import Draft, DraftShape, load_draft
from sglang_spec.train.target import Target

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")


def test_counts_of_every_capture(embedded: Pair) -> None:
    """A wrong capture is another row of numbers, though its accept length is 4 % away."""
    held = json.loads((embedded.draft / pinned.NAME).read_text())
    rows = heldout.read(embedded_held_out())
    target = Target(embedded.target, torch.float32, CPU)
    draft = load_draft(embedded.draft, torch.float32, CPU)
    wanted = {name: one["correct_drafts"] for name, one in held["counts"].items()}
    assert pinned.counts(target, draft, held, rows) == wanted
    assert list(wanted) == [
        "right",
        "one layer later",
        "one layer earlier",
        "default layers",
        "embedding first",
        "first two swapped",
        "reversed",
    ]
    assert all(wanted[name] != wanted["right"] for name in wanted if name != "right")


def test_only_clear_prompts_are_pinned(
    target: Target, held_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers too short for the table's 48 tokens; long enough; not the target's; nothing clear."""
    rows = heldout.read(held_out)
    shape = DraftShape(64, 3, 8, 8, 16, 96, 320, 1e-5, 10000.0)
    draft = Draft(shape, torch.arange(320), seed=3)
    assert pinned.table(target, draft, rows, [1, 2, 4])["prompts"] == []
    monkeypatch.setattr(pinned, "NEW_TOKENS", 12)
    monkeypatch.setattr(pinned, "CLEAR", 1e-4)
    few = [heldout.Row(r.kind, r.prompt, r.answer[:16]) for r in rows]
    table = pinned.table(target, draft, few, [1, 2, 4], 2)
    assert len(table["prompts"]) == 2
    found = pinned.counts(target, draft, table, few)
    assert found == {name: one["correct_drafts"] for name, one in table["counts"].items()}
    others = [heldout.Row(r.kind, r.prompt, (*r.answer[:9], 70, *r.answer[10:16])) for r in few]
    assert all(one.answer != row.answer for one, row in zip(others, few, strict=True))
    assert pinned.table(target, draft, others, [1, 2, 4], 2)["prompts"] == []
    monkeypatch.setattr(pinned, "CLEAR", 100.0)
    assert pinned.table(target, draft, few, [1, 2, 4], 2)["prompts"] == []
