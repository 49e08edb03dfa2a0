"""How many operations a verify step launches for penalties; on a GPU the host pays for each.

A structural count, the same on every machine: what a dispatcher sees, without what only looks at
memory in another way. The first step of a batch makes what the later ones use, and is left out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from kit.launches import Launches
from kit.verify_steps import VOCABULARY, Batch, Request, Verify, chains
from sglang.srt.spec_hardening.fidelity import window as fidelity

ALL = {"frequency_penalty": 0.25, "presence_penalty": 0.25, "repetition_penalty": 1.05}
TREE = [0, 0, 0, 1]  # parents
STEPS = 5


@pytest.fixture(autouse=True)
def own_book(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "_BOOKS", {})


def launched(asked: list[dict[str, Any]], tree: bool = False, gone: int | None = None) -> list[int]:
    """Launches of each of some steps that accept two tokens each.

    `gone` is a request that leaves before them, so that the lines of the others lie apart.
    """
    batch = Batch([Request([5], max_new_tokens=99, **one) for one in asked])
    if gone is not None:
        verify = chains([[5, 6]] * len(asked))
        fidelity.open_window(verify, batch, torch.zeros(2 * len(asked), VOCABULARY))  # type: ignore[arg-type]
        batch.reqs.pop(gone)
        asked = asked[:gone] + asked[gone + 1 :]
    count, found = len(asked), []
    for _ in range(STEPS):
        tokens = [[req.output_ids[-1], 5, 6, 7] for req in batch.reqs]
        verify = Verify(tokens, [TREE] * count, tree_topk=2) if tree else chains(tokens)
        logits = torch.randn(count * 4, VOCABULARY)
        index = torch.full((count, verify.max_tree_depth), -1, dtype=torch.int32)
        index[:, 0] = torch.arange(count) * 4
        index[:, 1] = index[:, 0] + 1
        lengths = torch.full((count,), 2, dtype=torch.int32)
        with Launches() as seen:
            window = fidelity.open_window(verify, batch, logits)  # type: ignore[arg-type]
            assert window is not None
            window.penalize(logits)
            window.close(index, lengths)
        found.append(seen.total)
        for req in batch.reqs:
            req.output_ids.extend([5, 9])
            req.kv.kv_committed_len += 2
    return found[1:]


# What each case takes today; more needs a reason.
@pytest.mark.parametrize(
    ("asked", "tree", "most"),
    [
        ([ALL], False, 18),
        ([ALL] * 9, False, 18),
        ([ALL, {}], False, 21),  # only some of the rows
        ([ALL, ALL | {"repetition_penalty": 0.9}], False, 19),
        ([ALL | {"min_new_tokens": 90}], False, 23),
        ([ALL] * 3, True, 34),
        ([ALL | {"min_new_tokens": 90}] * 3, True, 41),
        ([{"frequency_penalty": 1.0}], False, 12),
        ([{"repetition_penalty": 1.1}], False, 15),
        ([{"min_new_tokens": 90}], False, 5),
    ],
    ids=str,
)
def test_a_step_launches_no_more_than(asked: list[dict[str, Any]], tree: bool, most: int) -> None:
    found = launched(asked, tree)
    assert max(found) <= most, found


def test_lines_that_lie_apart_cost_a_few_more() -> None:
    """A batch of one has one line; of many, some have ended and left a gap."""
    assert max(launched([ALL] * 4, gone=1)) <= 23


def test_a_ban_that_is_over_costs_nothing() -> None:
    """Five tokens: the host knows of three, five and seven when the later steps are launched."""
    found = launched([{"min_new_tokens": 5}])
    assert found[0] > 0
    assert found[1:] == [0] * (STEPS - 2)


def test_a_batch_of_many_starts_with_as_many_launches_as_one_of_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first(count: int) -> Counter[str]:
        monkeypatch.setattr(fidelity, "_BOOKS", {})
        monkeypatch.setattr("sglang.srt.spec_hardening.fidelity.ledger.LINES", 64)
        batch = Batch([Request([5, 6], max_new_tokens=99, **ALL) for _ in range(count)])
        verify, logits = chains([[6, 7]] * count), torch.zeros(2 * count, VOCABULARY)
        with Launches() as seen:
            fidelity.open_window(verify, batch, logits)  # type: ignore[arg-type]
        return seen.by_name

    assert first(2) == first(40)
