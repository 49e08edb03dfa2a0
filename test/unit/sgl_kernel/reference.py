"""Plain meaning of every operator, as loops over requests, tokens and heads: slow, short, and the
judge of the fast forms.

Nothing here shares code with the package under test. Attention is computed in float64.
"""

import itertools
from collections.abc import Sequence

import torch


def tree_parents(
    parent_list: Sequence[int], selected: Sequence[int], topk: int
) -> list[int | None]:
    """Parent node of each node; node 0 has itself, an orphan has None."""
    parents: list[int | None] = [0]
    for proposal in selected:
        group = proposal // topk
        if group == 0:
            parents.append(0)
            continue
        origin = parent_list[group]
        parents.append(selected.index(origin) + 1 if origin in selected else None)
    return parents


def tree_path(parents: Sequence[int | None], node: int, depth: int) -> list[int]:
    """The node and its ancestors below node 0, at most `depth` of them."""
    path: list[int] = []
    current: int | None = node
    while current is not None and current != 0 and len(path) < depth:
        path.append(current)
        current = parents[current]
    return path


def build_tree(
    parent_list: torch.Tensor,
    selected: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    depth: int,
    n: int,
) -> dict[str, torch.Tensor]:
    """Mask [bs, n, n], positions, and the three link tables [bs, n]."""
    bs = seq_lens.numel()
    visible = torch.zeros(bs, n, n, dtype=torch.bool)
    positions = torch.zeros(bs, n, dtype=torch.int64)
    number = torch.zeros(bs, n, dtype=torch.int64)
    child = torch.full((bs, n), -1, dtype=torch.int64)
    sibling = torch.full((bs, n), -1, dtype=torch.int64)
    for b in range(bs):
        parents = tree_parents(parent_list[b].tolist(), selected[b].tolist(), topk)
        for i in range(n):
            path = tree_path(parents, i, depth)
            for j in [0, *path]:
                visible[b, i, j] = True
            positions[b, i] = int(seq_lens[b]) + len(path)
            number[b, i] = b * n + i
            children = [c for c in range(1, n) if parents[c] == i]
            if children:
                child[b, i] = children[0]
            for left, right in itertools.pairwise(children):
                sibling[b, left] = right
    return {
        "visible": visible,
        "positions": positions,
        "number": number,
        "child": child,
        "sibling": sibling,
    }


def full_mask(visible: torch.Tensor, seq_lens: torch.Tensor, prefix: bool) -> torch.Tensor:
    """The tree mask with its prefix columns, flattened request after request."""
    rows = []
    for b, length in enumerate(seq_lens.tolist()):
        for row in visible[b]:
            rows.append(torch.cat((torch.full((length,), prefix), row)))
    return torch.cat(rows)


def packed_mask(visible: torch.Tensor) -> list[int]:
    """One integer per row, bit j for column j."""
    return [
        sum(1 << j for j, bit in enumerate(row) if bit) for tree in visible.tolist() for row in tree
    ]


def verify_greedy(
    candidates: torch.Tensor,
    child: torch.Tensor,
    sibling: torch.Tensor,
    target: torch.Tensor,
    m: int,
) -> list[list[int]]:
    """The accepted path of each tree, node 0 first."""
    paths = []
    for b in range(candidates.shape[0]):
        path = [0]
        while len(path) < m:
            node = int(child[b, path[-1]])
            while node != -1 and int(candidates[b, node]) != int(target[b, path[-1]]):
                node = int(sibling[b, node])
            if node == -1:
                break
            path.append(node)
        paths.append(path)
    return paths


def murmur3(key: bytes) -> int:
    """MurmurHash3 x86 32 bit, seed 0, of a key whose length divides by four."""
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    state = 0
    for at in range(0, len(key), 4):
        block = int.from_bytes(key[at : at + 4], "little")
        block = rotate(block * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        state = (rotate(state ^ block, 13) * 5 + 0xE6546B64) & mask
    state ^= len(key)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return state ^ state >> 16


def attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """One request in float64: q [e, H, D], keys and values [T, KV, D], visible [e, T]."""
    queries, heads, _ = q.shape
    kv_head = torch.arange(heads) // (heads // keys.shape[1])
    out = torch.zeros(queries, heads, values.shape[2], dtype=torch.float64)
    for i in range(queries):
        seen = visible[i].nonzero().flatten()
        k, v = keys[seen].double()[:, kv_head], values[seen].double()[:, kv_head]
        scores = (k * q[i].double()).sum(-1) * scale
        if cap > 0:
            scores = cap * torch.tanh(scores / cap)
        highest = scores.max(0).values
        weights = torch.exp(scores - highest)
        total = weights.sum(0)
        if sinks is not None:
            total = total + torch.exp(sinks.double() - highest)
        out[i] = (weights.unsqueeze(-1) * v).sum(0) / total.unsqueeze(-1)
    return out


def visibility(
    end: int, new: int, window: int = 0, causal: bool = True, tree: torch.Tensor | None = None
) -> torch.Tensor:
    """Which of a request's `end` keys each of its `new` tokens sees: bool [new, end]."""
    seen = torch.zeros(new, end, dtype=torch.bool)
    prefix = end - new
    depth = [i if tree is None else int(tree[i].sum()) - 1 for i in range(new)]
    for i in range(new):
        for j in range(end):
            key_at = j if j < prefix else prefix + depth[j - prefix]
            allowed = True
            if j >= prefix and tree is not None:
                allowed = bool(tree[i, j - prefix])
            elif causal:
                allowed = j <= prefix + i
            if window > 0 and prefix + depth[i] - key_at >= window:
                allowed = False
            seen[i, j] = allowed
    return seen
