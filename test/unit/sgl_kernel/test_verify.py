"""`verify_tree_greedy_cpu` against the loop reference."""

from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import verify_tree_greedy_cpu
from unit.sgl_kernel import reference
from unit.sgl_kernel.inputs import Draft, draft, drafts, generator, quick

UNTOUCHED = -7


class Case(NamedTuple):
    candidates: torch.Tensor
    number: torch.Tensor
    child: torch.Tensor
    sibling: torch.Tensor
    target: torch.Tensor
    longest: int


class Verified(NamedTuple):
    predicts: torch.Tensor
    accept_index: torch.Tensor
    accepted: torch.Tensor


def case(tree: Draft, seed: int, vocabulary: int) -> Case:
    """A tree with random tokens; a small vocabulary makes agreement, and equal siblings, common."""
    rng = generator(seed)
    links = reference.build_tree(
        tree.parent_list,
        tree.selected,
        torch.zeros(tree.batch, dtype=torch.int64),
        tree.topk,
        tree.steps,
        tree.n,
    )
    shape = (tree.batch, tree.n)
    return Case(
        torch.randint(vocabulary, shape, generator=rng),
        links["number"],
        links["child"],
        links["sibling"],
        torch.randint(vocabulary, shape, generator=rng),
        tree.steps + 1,
    )


def run(given_case: Case, dtype: torch.dtype = torch.int32) -> Verified:
    batch, n = given_case.candidates.shape
    result = Verified(
        torch.full((batch * n,), UNTOUCHED, dtype=dtype),
        torch.full((batch, given_case.longest), -1, dtype=dtype),
        torch.full((batch,), UNTOUCHED, dtype=dtype),
    )
    verify_tree_greedy_cpu(
        predicts=result.predicts,
        accept_index=result.accept_index,
        accept_token_num=result.accepted,
        candidates=given_case.candidates,
        retrive_index=given_case.number,
        retrive_next_token=given_case.child,
        retrive_next_sibling=given_case.sibling,
        target_predict=given_case.target,
    )
    return result


def differences(result: Verified, given_case: Case) -> list[str]:
    batch, n = given_case.candidates.shape
    paths = reference.verify_greedy(
        given_case.candidates,
        given_case.child,
        given_case.sibling,
        given_case.target,
        given_case.longest,
    )
    predicts = torch.full((batch * n,), UNTOUCHED)
    index = torch.full((batch, given_case.longest), -1)
    for b, path in enumerate(paths):
        for step, node in enumerate(path):
            predicts[b * n + node] = given_case.target[b, node]
            index[b, step] = b * n + node
    wrong = {
        "predicts": not torch.equal(result.predicts.long(), predicts),
        "accept_index": not torch.equal(result.accept_index.long(), index),
        "accepted": result.accepted.tolist() != [len(path) - 1 for path in paths],
    }
    return [name for name, bad in wrong.items() if bad]


@quick(120)
@given(drafts(), st.integers(0, 2**31), st.integers(1, 6), st.booleans())
def test_verify_equals_reference(tree: Draft, seed: int, vocabulary: int, wide: bool) -> None:
    drawn = case(tree, seed, vocabulary)
    result = run(drawn, torch.int64 if wide else torch.int32)
    assert differences(result, drawn) == []


def test_full_agreement_accepts_the_whole_chain() -> None:
    drawn = case(draft(0, 3, 1, 5, 6), 0, 1)
    assert run(drawn).accepted.tolist() == [5, 5, 5]


def test_no_agreement_keeps_only_the_target_token() -> None:
    drawn = case(draft(0, 2, 2, 3, 6), 0, 1)
    drawn.target.fill_(9)
    result = run(drawn)
    assert result.accepted.tolist() == [0, 0]
    assert result.predicts.view(2, 6)[:, 0].tolist() == [9, 9]
    assert bool((result.predicts.view(2, 6)[:, 1:] == UNTOUCHED).all())


def test_a_short_accept_index_ends_the_walk() -> None:
    drawn = case(draft(0, 2, 1, 5, 6), 0, 1)._replace(longest=3)
    result = run(drawn)
    assert result.accepted.tolist() == [2, 2]
    assert differences(result, drawn) == []


def test_control_one_wrong_token_is_noticed() -> None:
    """The comparison must see a single candidate on the accepted path that differs."""
    drawn = case(draft(3, 2, 2, 4, 10), 0, 1)
    result = run(drawn)
    assert differences(result, drawn) == []
    last = int(result.accept_index[0].max())
    drawn.candidates.view(-1)[last] = 5
    assert "accepted" in differences(result, drawn)


def test_control_one_wrong_link_is_noticed() -> None:
    drawn = case(draft(3, 2, 2, 4, 10), 0, 1)
    result = run(drawn)
    drawn.child[1, 0] = -1
    assert set(differences(result, drawn)) == {"predicts", "accept_index", "accepted"}
