"""Each position of a verify window is judged as plain decoding would judge it there."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.verify_steps import EOS, VOCABULARY, Batch, Request, Verify, chains, judged
from sglang.srt.spec_hardening.fidelity import window as fidelity
from sglang.srt.spec_hardening.fidelity.tree import parents_of

SETTINGS: list[dict[str, Any]] = [
    {},
    {"frequency_penalty": 0.75},
    {"presence_penalty": 1.5},
    {"repetition_penalty": 1.3},
    {"min_new_tokens": 6},
    {"min_new_tokens": 5, "stop_token_ids": [11, 12]},
    {"frequency_penalty": -0.5, "presence_penalty": 0.5, "repetition_penalty": 0.8},
]


@pytest.fixture(autouse=True)
def own_book(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "_BOOKS", {})


def step(
    batch: Batch, verify: Verify, accepted: list[list[int]], padded: int = 0, room: int = 0
) -> None:
    """One verify step, judged at every node; then the host learns what was accepted.

    `accepted` are the nodes on the accepted way of each request, root first; the index of them has
    `room` for so many more.
    """
    rows = len(batch.reqs)
    stored = torch.randn(rows * verify.draft_token_num, VOCABULARY + padded)
    logits = stored[:, :VOCABULARY]
    before = logits.clone()
    window = fidelity.open_window(verify, batch, logits)  # type: ignore[arg-type]
    assert (window is None) == all(fidelity.fields_of(req) is None for req in batch.reqs)
    if window is not None:
        window.penalize(logits)
    for row, node in verify.nodes():
        req: Request = batch.reqs[row]
        place = row * verify.draft_token_num + node
        output = [*req.output_ids, *verify.way(row, node)]
        expected = judged(req, output, before[place])
        torch.testing.assert_close(logits[place], expected, rtol=1e-6, atol=1e-6)
    if window is not None:
        depth = verify.max_tree_depth + room
        index = torch.full((rows, depth), -1, dtype=torch.int32)
        for row, nodes in enumerate(accepted):
            for order, node in enumerate(nodes):
                index[row, order] = row * verify.draft_token_num + node
        window.close(index, torch.tensor([len(nodes) for nodes in accepted]))


def told(batch: Batch, verify: Verify, accepted: list[list[int]], bonus: list[int]) -> None:
    """The host learns of a step: the accepted drafts and the bonus token are put out."""
    for row, req in enumerate(batch.reqs):
        new = [verify.tokens[row][node] for node in accepted[row][1:]]
        req.output_ids.extend([*new, bonus[row]])
        req.kv.kv_committed_len += len(new) + 1


def run(seed: int, steps: int, width: int, settings_: list[dict[str, Any]]) -> None:
    dice = random.Random(seed)
    torch.manual_seed(seed)
    reqs = [Request([dice.randrange(VOCABULARY)], max_new_tokens=99, **one) for one in settings_]
    batch = Batch(reqs)
    for _ in range(steps):
        # Few different tokens, so that they repeat in the window and before it.
        tokens = [
            [req.output_ids[-1], *(dice.choice([0, 5, 6, EOS, 40]) for _ in range(width))]
            for req in reqs
        ]
        if dice.random() < 0.5:
            verify = chains(tokens)
        else:
            parents = [[0, *(dice.randrange(n) for n in range(1, width + 1))] for _ in reqs]
            verify = Verify(tokens, parents, tree_topk=dice.choice([width, -1]))
        accepted = []
        for row in range(len(reqs)):
            way, children = [0], [n for n in range(1, width + 1) if verify.parents[row][n] == 0]
            while children and dice.random() < 0.7:
                way.append(dice.choice(children))
                children = [n for n in range(1, width + 1) if verify.parents[row][n] == way[-1]]
            accepted.append(way)
        step(batch, verify, accepted, padded=dice.choice([0, 7]))
        told(batch, verify, accepted, [dice.choice([0, 5, 6, 41]) for _ in reqs])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.lists(st.sampled_from(SETTINGS), min_size=1))
def test_every_position_is_judged_as_plain_decoding_would(
    seed: int, width: int, asked: list[dict[str, Any]]
) -> None:
    run(seed, 6, width, asked)


def test_requests_come_and_go() -> None:
    """Lines are handed on when a request is gone; a long output makes the ledger wider."""
    batch = Batch([Request([5], max_new_tokens=99, **one) for one in SETTINGS])
    dice = random.Random(4)
    for _ in range(40):
        width = 4
        tokens = [
            [req.output_ids[-1], *(dice.randrange(VOCABULARY) for _ in range(width))]
            for req in batch.reqs
        ]
        verify = chains(tokens)
        accepted = [list(range(1 + dice.randrange(width + 1))) for _ in batch.reqs]
        step(batch, verify, accepted)
        told(batch, verify, accepted, [dice.randrange(VOCABULARY) for _ in batch.reqs])
        if dice.random() < 0.4:
            gone = dice.randrange(len(batch.reqs))
            new = Request([dice.randrange(VOCABULARY)], max_new_tokens=99, **dice.choice(SETTINGS))
            batch.reqs = [*batch.reqs[:gone], *batch.reqs[gone + 1 :], new]
    gc.collect()
    (book,) = fidelity._BOOKS.values()
    assert len(book.ledger.length) <= 16  # seven at a time, and those that the plan still holds


def test_a_tree_may_have_fewer_tokens_than_steps() -> None:
    """The index of the accepted has a column for each step then; also where lines lie apart."""
    dice = random.Random(5)
    reqs = [Request([1], frequency_penalty=0.75, max_new_tokens=99) for _ in range(3)]
    for here in (reqs, [reqs[0], reqs[2]], [reqs[2], reqs[0]]):
        tokens = [[req.output_ids[-1], *dice.sample(range(20, 40), 3)] for req in here]
        verify = Verify(tokens, [[0, 0, 0, 1]] * len(here), tree_topk=3)
        accepted = [[0, 1, 3] for _ in here]
        step(Batch(here), verify, accepted, room=4)
        told(Batch(here), verify, accepted, [7 for _ in here])


def test_the_ledger_widens_with_a_long_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang.srt.spec_hardening.fidelity.ledger.WIDTH", 3)
    run(9, 12, 4, SETTINGS)


def test_a_retracted_request_starts_from_what_it_keeps() -> None:
    """What was accepted but not yet told when it was retracted is forgotten."""
    req = Request([5], frequency_penalty=1.0, min_new_tokens=9, max_new_tokens=99)
    batch = Batch([req])
    step(batch, chains([[5, 6, 6, 6]]), [[0, 1, 2, 3]])
    told(batch, chains([[5, 6, 6, 6]]), [[0, 1, 2, 3]], [40])
    step(batch, chains([[40, 41, 42, 43]]), [[0, 1, 2, 3]])  # never told
    req.retraction_count += 1
    req.kv.kv_committed_len = 3 + len(req.output_ids)  # prefilled again, with its output
    req.output_ids.append(44)  # the token of that prefill
    step(batch, chains([[44, 5, 6, 40]]), [[0]])


def test_the_token_of_a_prefill_may_not_have_been_told() -> None:
    """With overlap the host has not seen the first token when the first window is opened."""
    req = Request([], frequency_penalty=1.0, max_new_tokens=99)
    req.kv.kv_committed_len = 3
    batch, verify = Batch([req]), chains([[5, 5, 6, 6]])
    logits = torch.zeros(4, VOCABULARY)
    window = fidelity.open_window(verify, batch, logits)  # type: ignore[arg-type]
    assert window is not None
    window.penalize(logits)
    assert logits[:, 5].tolist() == [-1, -2, -2, -2] and logits[:, 6].tolist() == [0, 0, -1, -2]
    window.close(torch.tensor([[0, 1, 2, -1]], dtype=torch.int32), torch.tensor([3]))
    logits = torch.zeros(4, VOCABULARY)  # the step after is launched before anything was told
    window = fidelity.open_window(chains([[7, 5, 6, 7]]), batch, logits)  # type: ignore[arg-type]
    assert window is not None
    window.penalize(logits)
    assert logits[:, 5].tolist() == [-2, -3, -3, -3] and logits[:, 6].tolist() == [-1, -1, -2, -2]


@pytest.mark.parametrize("told_of_it", [False, True])
def test_a_plain_server_claims_the_place_of_its_token_first(told_of_it: bool) -> None:
    req = Request([5] if told_of_it else [], frequency_penalty=1.0, max_new_tokens=99)
    req.kv.kv_committed_len = 4  # the prompt, and the token that this step writes
    logits = torch.zeros(1, VOCABULARY)
    fidelity.plain_step(Batch([req]), torch.tensor([5]), logits, claimed=1)  # type: ignore[arg-type]
    assert logits[0, 5] == -1


def test_steps_without_a_draft_count_too() -> None:
    """Speculation may be off for some steps in the life of a request."""
    reqs = [Request([5], max_new_tokens=99, **one) for one in SETTINGS]
    batch = Batch(reqs)
    dice = random.Random(2)
    for turn in range(12):
        tokens = [[req.output_ids[-1], 5, 6, EOS] for req in reqs]
        if turn % 3:
            logits = torch.randn(len(reqs), VOCABULARY)
            before = logits.clone()
            last = torch.tensor([row[0] for row in tokens])
            fidelity.plain_step(batch, last, logits)  # type: ignore[arg-type]
            for row, req in enumerate(reqs):
                expected = judged(req, list(req.output_ids), before[row])
                torch.testing.assert_close(logits[row], expected, rtol=1e-6, atol=1e-6)
            verify, accepted = chains([row[:1] for row in tokens]), [[0]] * len(reqs)
        else:
            verify, accepted = chains(tokens), [[0, 1, 2]] * len(reqs)
            step(batch, verify, accepted)
        told(batch, verify, accepted, [dice.choice([0, 5, 6, 41]) for _ in reqs])


def test_rows_without_fields_are_not_touched() -> None:
    logits = torch.full((8, VOCABULARY), float("nan"))
    batch = Batch([Request([5]), Request([5], presence_penalty=1.0)])
    window = fidelity.open_window(chains([[5, 6, 7, 8]] * 2), batch, logits)  # type: ignore[arg-type]
    assert window is not None
    written = logits.clone()
    written[:] = 1.0
    window.penalize(written)
    assert bool((written[:4] == 1.0).all()) and bool((written[4:] != 1.0).any())


def test_a_batch_without_fields_has_no_window() -> None:
    batch = Batch([Request([5]), Request([6], logit_bias={"3": 1.0})])
    verify = chains([[5, 6], [6, 7]])
    assert fidelity.open_window(verify, batch, torch.zeros(4, VOCABULARY)) is None  # type: ignore[arg-type]


@given(st.integers(0, 2**32), st.integers(2, 12))
def test_parents_are_those_of_the_links(seed: int, nodes: int) -> None:
    dice = random.Random(seed)
    parents = [[0, *(dice.randrange(n) for n in range(1, nodes))] for _ in range(3)]
    verify = Verify([[0] * nodes] * 3, parents, tree_topk=-1)
    found = parents_of(verify.retrieve_next_token, verify.retrieve_next_sibling, nodes - 1)
    assert found.tolist() == parents


def test_narrower_windows_follow_before_the_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With adaptive step counts and overlap: what the wide step put out still has its place."""
    monkeypatch.setattr("sglang.srt.spec_hardening.fidelity.ledger.WIDTH", 3)
    req = Request([10], frequency_penalty=1.0, max_new_tokens=99)
    batch = Batch([req])
    first, late = 10, []
    for width in (6, 1, 6, 1, 1, 1):
        verify = chains([list(range(first, first + width))])
        logits = torch.zeros(width, VOCABULARY)
        window = fidelity.open_window(verify, batch, logits)  # type: ignore[arg-type]
        assert window is not None
        window.penalize(logits)
        assert logits[-1].nonzero().flatten().tolist() == list(range(10, first + width))
        window.close(torch.arange(width, dtype=torch.int32)[None], torch.tensor([width]))
        req.output_ids.extend(late)
        req.kv.kv_committed_len += len(late)
        late = list(range(first + 1, first + width + 1))
        first += width
