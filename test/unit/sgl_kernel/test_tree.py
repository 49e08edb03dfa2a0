"""`build_tree_kernel_efficient_cpu` against the loop reference, in every mask mode."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import build_tree_kernel_efficient_cpu
from sgl_kernel.tree import FULL_MASK, QLEN_ONLY, QLEN_ONLY_BITPACKING
from unit.sgl_kernel import reference
from unit.sgl_kernel.inputs import Draft, draft, drafts, quick


class Built(NamedTuple):
    mask: torch.Tensor
    positions: torch.Tensor
    number: torch.Tensor
    child: torch.Tensor
    sibling: torch.Tensor


def build(tree: Draft, seq_lens: torch.Tensor, mode: int, mask: torch.Tensor) -> Built:
    links = torch.full((3, tree.batch, tree.n), -1)
    positions = torch.empty(tree.batch * tree.n, dtype=torch.int64)
    build_tree_kernel_efficient_cpu(
        *(tree.parent_list, tree.selected, seq_lens, mask, positions, links[0], links[1], links[2]),
        *(tree.topk, tree.steps, tree.n, mode),
    )
    return Built(mask, positions, *links)


def build_qlen(tree: Draft, seq_lens: torch.Tensor) -> Built:
    mask = torch.ones(tree.batch * tree.n * tree.n, dtype=torch.bool)
    return build(tree, seq_lens, QLEN_ONLY, mask)


def differences(built: Built, tree: Draft, seq_lens: torch.Tensor) -> list[str]:
    """Names of the outputs that differ from the reference."""
    expected = reference.build_tree(
        tree.parent_list, tree.selected, seq_lens, tree.topk, tree.steps, tree.n
    )
    found = {
        "visible": built.mask.view(tree.batch, tree.n, tree.n).bool(),
        "positions": built.positions.view(tree.batch, tree.n),
        "number": built.number,
        "child": built.child,
        "sibling": built.sibling,
    }
    return [name for name, value in found.items() if not torch.equal(value, expected[name])]


def lengths(tree: Draft, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.arange(tree.batch, dtype=dtype) * 5 + 3


@quick(120)
@given(drafts(), st.sampled_from([torch.int64, torch.int32]))
def test_tree_equals_reference(tree: Draft, dtype: torch.dtype) -> None:
    seq_lens = lengths(tree, dtype)
    assert differences(build_qlen(tree, seq_lens), tree, seq_lens) == []


@quick(40)
@given(drafts(max_nodes=24), st.booleans())
def test_full_mask_writes_tree_cells_only(tree: Draft, prefix: bool) -> None:
    seq_lens = lengths(tree)
    size = int(seq_lens.sum()) * tree.n + tree.batch * tree.n * tree.n
    built = build(tree, seq_lens, FULL_MASK, torch.full((size,), prefix))
    visible = build_qlen(tree, seq_lens).mask.view(tree.batch, tree.n, tree.n)
    assert torch.equal(built.mask, reference.full_mask(visible, seq_lens, prefix))


@pytest.mark.parametrize(
    ("dtype", "n"), [(torch.uint8, 8), (torch.uint16, 16), (torch.uint32, 17), (torch.uint32, 32)]
)
def test_packed_mask(dtype: torch.dtype, n: int) -> None:
    tree = draft(7, 3, 4, 4, n)
    seq_lens = lengths(tree)
    built = build(tree, seq_lens, QLEN_ONLY_BITPACKING, torch.zeros(3 * n, dtype=dtype))
    visible = build_qlen(tree, seq_lens).mask.view(3, n, n)
    assert built.mask.tolist() == reference.packed_mask(visible)


def test_packed_mask_too_narrow_is_refused() -> None:
    tree = draft(7, 1, 4, 4, 9)
    with pytest.raises(ValueError, match=r"9 draft tokens do not fit a torch\.uint8"):
        build(tree, lengths(tree), QLEN_ONLY_BITPACKING, torch.zeros(9, dtype=torch.uint8))


def test_unknown_mask_mode_is_refused() -> None:
    tree = draft(7, 1, 2, 2, 3)
    with pytest.raises(ValueError, match="unknown tree mask mode 3"):
        build(tree, lengths(tree), 3, torch.zeros(9, dtype=torch.bool))


def test_mask_buffer_may_be_longer_than_the_batch() -> None:
    tree = draft(7, 2, 2, 3, 5)
    seq_lens = lengths(tree)
    built = build(tree, seq_lens, QLEN_ONLY, torch.ones(4 * 25, dtype=torch.bool))
    assert torch.equal(built.mask[:50], build_qlen(tree, seq_lens).mask)
    assert bool(built.mask[50:].all())


def test_chain_is_lower_triangular() -> None:
    """topk 1: the tree is a chain, whose mask is plain causality."""
    tree = draft(0, 2, 1, 5, 6)
    built = build_qlen(tree, lengths(tree))
    chain = torch.ones(6, 6, dtype=torch.bool).tril()
    assert torch.equal(built.mask.view(2, 6, 6), chain.expand(2, 6, 6))
    assert built.child.tolist() == [[1, 2, 3, 4, 5, -1]] * 2
    assert bool((built.sibling == -1).all())


def test_orphans_occur_and_stay_unlinked() -> None:
    """Equal scores can select a child without its parent; it must be reachable from nowhere."""
    orphans = 0
    for seed in range(20):
        tree = draft(seed, 4, 3, 4, 12, ties=True)
        built = build_qlen(tree, lengths(tree))
        for b in range(tree.batch):
            parents = reference.tree_parents(
                tree.parent_list[b].tolist(), tree.selected[b].tolist(), tree.topk
            )
            linked = {*built.child[b].tolist(), *built.sibling[b].tolist()}
            for node, parent in enumerate(parents):
                if parent is None:
                    orphans += 1
                    assert node not in linked
    assert orphans > 0, "no orphan was drawn: the test shows nothing"


@pytest.mark.parametrize("output", ["mask", "positions", "child", "sibling", "number"])
def test_control_one_wrong_cell_is_noticed(output: str) -> None:
    tree = draft(11, 2, 3, 3, 9)
    seq_lens = lengths(tree)
    built = build_qlen(tree, seq_lens)
    cell = getattr(built, output).view(-1)
    cell[7] = ~cell[7] if output == "mask" else cell[7] + 1
    assert differences(built, tree, seq_lens) == ["visible" if output == "mask" else output]


def test_control_a_wrong_parent_is_noticed() -> None:
    tree = draft(11, 2, 3, 3, 9)
    seq_lens = lengths(tree)
    moved = tree.parent_list.clone()
    used = int(tree.selected[0, -1]) // tree.topk
    moved[0, used] = int(tree.selected[0, 0]) if moved[0, used] != tree.selected[0, 0] else 1
    built = build_qlen(tree._replace(parent_list=moved), seq_lens)
    assert "visible" in differences(built, tree, seq_lens)
