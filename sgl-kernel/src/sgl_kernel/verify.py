"""Greedy verify: which path of the draft tree agrees with the target's own choices."""

import torch


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walk each tree from node 0, at every node to the first child that holds the target's token,
    and record the path.

    Caller: `kernels/ops/speculative/spec_tree.py: verify_tree_greedy_func`. The walk ends where no
    child agrees, or when `accept_index` is full. n is the number of nodes of a tree, m the longest
    path including node 0.

    Args:
        predicts: integer [bs * n] or longer, written at each accepted node: the target's token
            after it.
        accept_index: integer [bs, m], written: node numbers of the path (`retrive_index`); cells
            beyond it stay as they are.
        accept_token_num: integer [bs], written: accepted draft tokens, node 0 not counted.
        candidates: integer [bs, n], the tree's tokens.
        retrive_index, retrive_next_token, retrive_next_sibling: integer [bs, n], as built by
            `build_tree_kernel_efficient_cpu`.
        target_predict: integer [bs, n] or flat, the target's argmax at each node number.
    """
    number = retrive_index.to(torch.int64)
    wanted = target_predict.reshape(-1)[number]
    follow = _agreeing_child(candidates, retrive_next_token, retrive_next_sibling, wanted)

    longest = accept_index.shape[1]
    node = torch.zeros((number.shape[0], 1), dtype=torch.int64)
    path, alive = [node], [torch.ones_like(node, dtype=torch.bool)]
    for _ in range(1, longest):
        step = follow.gather(1, path[-1])
        alive.append(alive[-1] & (step >= 0))
        path.append(torch.where(alive[-1], step, path[-1]))
    nodes, reached = torch.cat(path, 1), torch.cat(alive, 1)

    # Past the end of a path `nodes` repeats its last node, so each cell written twice is written
    # with one value.
    accepted = number.gather(1, nodes)
    predicts[accepted] = wanted.gather(1, nodes).to(predicts.dtype)
    accept_index.copy_(torch.where(reached, accepted, accept_index))
    accept_token_num.copy_(reached.sum(1) - 1)


def _agreeing_child(
    tokens: torch.Tensor,
    first_child: torch.Tensor,
    next_sibling: torch.Tensor,
    wanted: torch.Tensor,
) -> torch.Tensor:
    """For every node at once, its first child that holds the wanted token, or -1: int64 [bs, n]."""
    child = first_child.to(torch.int64)
    sibling = next_sibling.to(torch.int64)
    found = torch.full_like(child, -1)
    for _ in range(child.shape[1]):
        exists = child >= 0
        at = child.clamp_min(0)
        agrees = exists & (tokens.gather(1, at) == wanted) & (found < 0)
        found = torch.where(agrees, child, found)
        child = torch.where(exists, sibling.gather(1, at), -1)
        if not bool((child >= 0).any()):
            break
    return found
