"""The draft tree of a verify step: for each node, the tokens on the way to it.

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
class Paths:
    """Ways from the root to each of the M nodes of R trees, at most D nodes long.

    Attributes:
        parents: int64 [R, M], node before this one; 0 for the root.
        depths: int64 [R, M], nodes between the root and this one, itself included; 0 for the root.
        tokens: int64 [R, M, D], tokens of the nodes on the way, the node's own first, the root's
            last and then repeated.
        valid: bool [R, M, D], False where it is a repetition.
    """

    parents: torch.Tensor
    depths: torch.Tensor
    tokens: torch.Tensor
    valid: torch.Tensor


def paths_of(verify: Tree, rows: torch.Tensor) -> Paths:
    """The ways of the trees of some requests, without waiting for the device.

    Args:
        verify: the trees of the batch.
        rows: int64 [R], whose trees.
    """
    nodes = verify.draft_token_num
    tokens = verify.draft_token.view(-1, nodes)[rows].long()
    if verify.tree_topk == 1:
        parents = torch.arange(-1, nodes - 1, device=tokens.device).clamp_(min=0)
        return follow(tokens, parents.expand_as(tokens), nodes)
    child, sibling = verify.retrieve_next_token[rows], verify.retrieve_next_sibling[rows]
    widest = nodes - 1 if verify.tree_topk < 0 else min(verify.tree_topk, nodes - 1)
    return follow(tokens, parents_of(child, sibling, widest), verify.max_tree_depth)


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
    # Column `nodes` takes what leads nowhere.
    first = torch.where(child < 0, nodes, child).long()
    second = torch.where(sibling < 0, nodes, sibling).long()
    parents.scatter_(1, first, here)
    for _ in range(widest - 1):
        parents.scatter_(1, second, parents[:, :nodes].clone())
    parents[:, 0] = 0
    return parents[:, :nodes].contiguous()


def follow(tokens: torch.Tensor, parents: torch.Tensor, longest: int) -> Paths:
    """Go from each node to the root.

    Args:
        tokens, parents: int64 [R, M].
        longest: most nodes on a way, the root included.
    """
    here = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    seen, valid = [], []
    moved = torch.ones_like(tokens, dtype=torch.bool)
    for _ in range(longest):
        seen.append(tokens.gather(1, here))
        valid.append(moved)
        moved = moved & (here > 0)
        here = parents.gather(1, here)
    known = torch.stack(valid, dim=2)
    return Paths(parents, known.sum(dim=2) - 1, torch.stack(seen, dim=2), known)
