"""The draft tree of a verify step: for each node, what lies on the way to it.

Node 0 is the last token that was put out, every other node a drafted token after its parent. What
verify judges at a node is the token after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


class Tree(Protocol):
    """What is read of an `EagleVerifyInput`: M nodes for each request.

    Attributes:
        draft_token: integer [requests * M], the nodes' tokens.
        retrieve_next_token, retrieve_next_sibling: integer [requests, M], first child of a node and
            next child of its parent, or -1.
    """

    draft_token: torch.Tensor
    retrieve_next_token: torch.Tensor
    retrieve_next_sibling: torch.Tensor
    draft_token_num: int

    @property
    def tree_topk(self) -> int:
        """Most children of a node; -1: not known."""

    @property
    def max_tree_depth(self) -> int:
        """Most nodes on a way, the root included."""


@dataclass(frozen=True)
class Ways:
    """Ways from the root to each of the M nodes of R trees.

    Attributes:
        tokens: int64 [R, M], the nodes' tokens.
        above: float32 [R, M, M], 1 where the second node lies on the way to the first, both ends
            included, else 0; None for chains, where the nodes of a way are those before it.
    """

    tokens: torch.Tensor
    above: torch.Tensor | None


def ways_of(verify: Tree, rows: torch.Tensor | None) -> Ways:
    """The ways of the trees of some requests, without waiting for the device.

    Args:
        verify: the trees of the batch.
        rows: int64 [R], whose trees; None: all.
    """
    tokens = pick(verify.draft_token.view(-1, verify.draft_token_num), rows).long()
    if verify.tree_topk == 1:
        return Ways(tokens, None)
    return Ways(tokens, above_of(parents_in(verify, rows), verify.max_tree_depth))


def parents_in(verify: Tree, rows: torch.Tensor | None) -> torch.Tensor:
    """The parent of each node of these trees, int64 [R, M]; 0 for the root."""
    nodes = verify.draft_token_num
    if verify.tree_topk == 1:
        count = len(verify.draft_token) // nodes if rows is None else len(rows)
        parents = torch.arange(-1, nodes - 1, device=verify.draft_token.device).clamp_(min=0)
        return parents.expand(count, nodes)
    child, sibling = (
        pick(verify.retrieve_next_token, rows),
        pick(verify.retrieve_next_sibling, rows),
    )
    widest = nodes - 1 if verify.tree_topk < 0 else min(verify.tree_topk, nodes - 1)
    return parents_of(child, sibling, widest)


def pick(values: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """Rows of a tensor; None: all of them, and nothing is launched."""
    return values if rows is None else values.index_select(0, rows)


def parents_of(child: torch.Tensor, sibling: torch.Tensor, widest: int) -> torch.Tensor:
    """The parent of each node, from the links that verify walks along.

    Args:
        child: [R, M], first child of each node, or -1.
        sibling: [R, M], next child of the same parent, or -1.
        widest: most children that a node can have.

    Returns:
        int64 [R, M]; 0 for the root and for a node that nothing leads to.
    """
    count, nodes = child.shape
    parents = torch.zeros(count, nodes + 1, dtype=torch.int64, device=child.device)
    here = torch.arange(nodes, device=child.device).expand(count, nodes)
    # Column `nodes` takes what leads nowhere: that is what -1 is of its remainders.
    parents.scatter_(1, child.remainder(nodes + 1).long(), here)
    second = sibling.remainder(nodes + 1).long() if widest > 1 else sibling
    for _ in range(widest - 1):
        parents.scatter_(1, second, parents[:, :nodes].clone())
    return parents[:, :nodes]


def above_of(parents: torch.Tensor, longest: int) -> torch.Tensor:
    """Which nodes lie on the way to which, as in `Ways`.

    Args:
        parents: int64 [R, M].
        longest: most nodes on a way, the root included.
    """
    count, nodes = parents.shape
    above = torch.eye(nodes, device=parents.device).repeat(count, 1, 1)
    here = parents
    for step in range(longest - 1):
        here = here if step == 0 else parents.gather(1, here)
        above.scatter_(2, here[:, :, None], 1.0)
    return above
