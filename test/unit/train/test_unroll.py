"""The unrolled draft is what an engine computes step by step with a KV cache."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle, tiny_pair
from sglang_spec.models.tiny.plan import BOS
from sglang_spec.train.data import Batch
from sglang_spec.train.evaluate import captures, counts, evaluate, prepare
from sglang_spec.train.export import write
from sglang_spec.train.heldout import Row
from sglang_spec.train.model import Draft, DraftShape, load_draft
from sglang_spec.train.replay import Acceptance, replay
from sglang_spec.train.target import Target
from sglang_spec.train.unroll import wanted

torch = pytest.importorskip("torch")
from unit.models.eagle3_reference import Draft as Reference  # noqa: E402 - needs torch

CPU = torch.device("cpu")
LAYERS = (1, 2, 4)


@pytest.fixture(scope="module")
def random_draft(target: Target) -> Draft:
    """Large enough weights that every part of it matters; 8 query heads on 4 KV heads."""
    shape = DraftShape(64, 3, 8, 4, 16, 96, 200, 1e-5, 10000.0)
    draft = Draft(shape, torch.arange(100, 300))
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in draft.parameters():
            size = 0.3 if one.dim() == 1 else one.shape[1] ** -0.5
            one.copy_(torch.randn(one.shape, generator=draw) * size + (one.dim() == 1))
        draft.scale.copy_(0.5 + torch.rand(draft.scale.shape, generator=draw))
    return draft


def test_every_step_from_every_position(target: Target, random_draft: Draft) -> None:
    """Chains of four steps, against rows that are cached, used and forgotten one by one."""
    ids = torch.randint(64, 320, (1, 21), generator=torch.Generator().manual_seed(2))
    states, _ = target.states(ids, LAYERS)
    with torch.no_grad():
        chains = list(random_draft.unroll(target.embedding, ids, states, 4))
    shape, tokens = random_draft.shape, ids[0].tolist()
    config = {
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.eps,
        "rope_parameters": {"rope_theta": shape.theta},
    }
    reference = Reference(config, random_draft.state(), target.embedding)
    fused = reference.fuse(states[0])
    for start in range(16):
        out = reference.extend(fused[start : start + 1], [tokens[start + 1]])
        for step in range(4):
            torch.testing.assert_close(
                chains[step][0, start], out[-1], rtol=1e-4, atol=1e-4, msg=f"{start}, step {step}"
            )
            got = random_draft.logits(chains[step][0, start])
            torch.testing.assert_close(got, reference.logits(out)[-1], rtol=1e-4, atol=1e-4)
            if step < 3:
                out = reference.extend(out, [tokens[start + 2 + step]])
        reference.forget(start + 1)


@pytest.mark.parametrize("width", [256, 40])
def test_what_is_wanted(target: Target, width: int) -> None:
    """The target's distribution where the draft knows its best token, and nothing elsewhere."""
    draw = torch.Generator().manual_seed(6)
    ids = torch.randint(64, 320, (3, 24), generator=draw)
    learn = torch.rand(ids.shape, generator=draw) < 0.6
    states, last = target.states(ids, LAYERS)
    tokens = torch.randperm(len(target.head), generator=draw)[:width].sort().values
    want = wanted(Batch(ids, learn, states, last), target.head, tokens, 4)
    places = [(row, place) for row, place in learn.nonzero().tolist() if place > 4]
    assert list(zip(want.row.tolist(), want.place.tolist(), strict=True)) == places
    unknown = 0
    for number, (row, place) in enumerate(places):
        logits = target.logits(last[row, place])
        best = int(logits.argmax())
        if best in tokens.tolist():
            assert int(tokens[want.best[number]]) == best
            torch.testing.assert_close(want.chance[number], logits[tokens].softmax(-1))
        else:
            unknown += 1
            assert int(want.best[number]) == -1 and not want.chance[number].any()
    assert 0 < unknown < len(places)


def test_padding_changes_nothing(target: Target, random_draft: Draft) -> None:
    ids = torch.randint(64, 320, (1, 16), generator=torch.Generator().manual_seed(4))
    longer = torch.cat([ids, torch.zeros(1, 8, dtype=torch.long)], 1)
    made = []
    for row in (ids, longer):
        states, _ = target.states(row, LAYERS)
        with torch.no_grad():
            made.append(torch.stack(list(random_draft.unroll(target.embedding, row, states, 3))))
    # The last steps of the last positions read tokens that come after the sequence.
    torch.testing.assert_close(made[0][:, :, :12], made[1][:, :, :12], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("plan", [TINY, TINY_HALF], ids=["whole", "half"])
def test_accept_lengths_of_the_tiny_pair(plan) -> None:
    """Every draft is right, or, with half the vocabulary, exactly those the oracle says."""
    pair = tiny_pair(plan)
    target = Target(pair.target, torch.float32, CPU)
    draft = load_draft(pair.draft, torch.float32, CPU)
    layers = json.loads((pair.draft / "config.json").read_text())["eagle_config"][
        "eagle_aux_hidden_state_layer_ids"
    ]
    oracle, drawn, rows = Oracle(plan), random.Random(5), []
    for length in (20, 47):
        prompt = [BOS, *(drawn.randrange(64, 320) for _ in range(length))]
        rows.append(Row("tiny", tuple(prompt), tuple(oracle.greedy(prompt, 60))))
    prepared = list(prepare(target, rows, layers))
    found = counts(draft, target.embedding, rows, prepared, 3)
    for row, one in zip(rows, found, strict=True):
        lengths = oracle.accept_lengths(row.prompt, 60, 3)
        cycles, made = [], 1
        for length in lengths:  # only cycles that lie inside the answer
            if made + 3 + 1 > len(row.answer):
                break
            cycles.append(length - 1)
            made += length
        assert list(one.histogram) == [cycles.count(n) for n in range(4)]
    if plan is TINY:
        assert all(one.accept_length == 4 for one in found)
        wrong = counts(draft, target.embedding, rows, prepare(target, rows, [2, 3, 5]), 3)
        assert all(one.accept_length == 1 for one in wrong), "a wrong capture was not seen"


def test_a_report(tiny: Pair) -> None:
    target = Target(tiny.target, torch.float32, CPU)
    draft = load_draft(tiny.draft, torch.float32, CPU)
    rows = []
    for number, kind in enumerate(("a", "a", "b")):
        prompt = [BOS, *range(70 + 9 * number, 110 + 9 * number)]
        answer = Oracle(TINY).greedy(prompt, 40) if number else [71, 72] * 20
        rows.append(Row(kind, tuple(prompt), tuple(answer)))
    report = evaluate(target, draft, rows, [1, 3, 5], wrong=True)
    assert report["answers"] == 3 and report["looping_answers"] == 1
    assert report["without_loops"]["accept_length"] == 4
    assert report["kinds"]["b"]["by_position"] == [1, 1, 1]
    assert report["kinds"]["a"]["accept_length"] < 4  # the made-up answer is not the target's
    assert {one["accept_length"] < 2 for one in report["wrong_captures"].values()} == {True}


def test_wrong_captures_of_a_list() -> None:
    assert captures([3, 15, 27], 30) == {
        "one layer later": [4, 16, 28],
        "one layer earlier": [2, 14, 26],
        "default layers": [1, 14, 26],
        "embedding first": [-1, 15, 27],
        "first two swapped": [15, 3, 27],
        "reversed": [27, 15, 3],
    }
    assert "one layer later" not in captures([1, 3, 5], 6)


def test_written_and_read_again(
    target: Target, folder: Path, random_draft: Draft, tmp_path: Path
) -> None:
    """What is loaded drafts like what was trained, the scale folded in, in bf16."""
    out = write(random_draft, LAYERS, folder, target.shape.config, tmp_path / "draft", 40)
    read = load_draft(out, torch.float32, CPU)
    assert read.tokens.tolist() == list(range(100, 300))
    ids = torch.randint(64, 320, (1, 24), generator=torch.Generator().manual_seed(2))
    states, _ = target.states(ids, LAYERS)
    with torch.no_grad():
        one, two = (
            torch.stack([d.logits(h) for h in d.unroll(target.embedding, ids, states, 3)])
            for d in (random_draft, read)
        )
    assert float((one - two).norm() / one.norm()) < 0.02
    assert replay(2, [1] * 9, [[1] * 9]) == Acceptance((0, 3))
