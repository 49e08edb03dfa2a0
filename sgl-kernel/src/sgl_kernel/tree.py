"""Building the draft tree: parent links, positions and attention mask of the tokens to verify.

Vocabulary. Step 1 of drafting proposes `topk` tokens, every later step `topk * topk`; all proposals
of a request have one running number. `selected_index` holds the numbers kept for verify, so tree
node i > 0 is proposal `selected_index[i - 1]` and node 0 is the last verified token. Proposals come
in groups of `topk` with one parent; `parent_list[g]` is the proposal that group g grew from, group
0 growing from node 0.
"""

import torch

FULL_MASK = 0
QLEN_ONLY = 1
QLEN_ONLY_BITPACKING = 2

_WORD_BITS = {torch.uint8: 8, torch.uint16: 16, torch.uint32: 32}


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int = FULL_MASK,
) -> None:
    """Fill the five outputs of a batch of draft trees, in place.

    Caller: `kernels/ops/speculative/spec_tree.py: build_tree_kernel_efficient_func`. n is
    `draft_token_num`.

    A selected node whose parent was not selected (equal scores can do that) is linked to nobody, so
    verify never reaches it; it sees itself and node 0.

    Args:
        parent_list: int64 [bs, groups], possibly with no groups beyond the first.
        selected_index: int64 [bs, n - 1].
        verified_seq_len: integer [bs], length without draft tokens.
        tree_mask: written. FULL_MASK: bool, sum(seq) * n + bs * n * n entries, each query row seq +
            n wide, of which only the last n are written. QLEN_ONLY: bool [bs * n * n] or longer.
            QLEN_ONLY_BITPACKING: unsigned words [bs * n] or longer, bit j of a row being column j.
        positions: integer [bs * n], written: seq + depth of the node.
        retrive_index: integer [bs, n], written: running number of the node in the batch.
        retrive_next_token: integer [bs, n], written: first child, or -1.
        retrive_next_sibling: integer [bs, n], written: next child of the same parent, or -1.
        topk, depth: width and number of draft steps; paths are followed for at most `depth` nodes.

    Raises:
        ValueError: unknown mask mode, or a bit-packed mask whose words are too narrow for n.
    """
    n, bs = draft_token_num, verified_seq_len.numel()
    parent = _parents(parent_list, selected_index.view(bs, n - 1), topk)
    visible, level = _ancestors(parent, depth)
    seq_len = verified_seq_len.to(torch.int64).view(bs, 1)
    positions.view(bs, n).copy_(level + seq_len)
    retrive_index.view(bs, n).copy_(torch.arange(bs * n).view(bs, n))
    child = parent[:, None, 1:] == torch.arange(n).view(1, n, 1)
    retrive_next_token.view(bs, n).copy_(_first_true(child, 1))
    younger = (parent.unsqueeze(2) == parent.unsqueeze(1)).triu(1) & (parent >= 0).unsqueeze(2)
    younger[:, 0] = False
    retrive_next_sibling.view(bs, n).copy_(_first_true(younger, 0))
    _write_mask(tree_mask, visible, seq_len, tree_mask_mode)


def _parents(parent_list: torch.Tensor, selected: torch.Tensor, topk: int) -> torch.Tensor:
    """Parent of each node: int64 [bs, n], 0 for node 0, -1 where it was not selected."""
    bs = selected.shape[0]
    group = torch.div(selected, topk, rounding_mode="floor")
    if parent_list.numel() == 0:
        parent = torch.where(group == 0, 0, -1)
    else:
        grown_from = parent_list.view(bs, -1).gather(1, group)
        found = _first_true(selected.unsqueeze(1) == grown_from.unsqueeze(2), 1)
        parent = torch.where(group == 0, 0, found)
    return torch.cat((parent.new_zeros(bs, 1), parent), dim=1)


def _ancestors(parent: torch.Tensor, depth: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Who sees whom, and how deep each node is: bool [bs, n, n] and int64 [bs, n]."""
    bs, n = parent.shape
    upwards = parent.clamp_min(0)
    node = torch.arange(n).expand(bs, n)
    visible = torch.zeros(bs, n, n, dtype=torch.bool)
    visible[:, :, 0] = True
    level = torch.zeros_like(parent)
    for _ in range(depth):
        visible.scatter_(2, node.unsqueeze(2), True)
        level += node > 0
        node = upwards.gather(1, node)
    return visible, level


def _first_true(mask: torch.Tensor, shift: int) -> torch.Tensor:
    """Index of the first true entry of the last dimension plus `shift`, or -1."""
    if mask.shape[-1] == 0:
        return torch.full(mask.shape[:-1], -1, dtype=torch.int64)
    index = mask.view(torch.uint8).argmax(-1)
    return torch.where(mask.any(-1), index + shift, -1)


def _write_mask(
    tree_mask: torch.Tensor, visible: torch.Tensor, seq_len: torch.Tensor, mode: int
) -> None:
    bs, n, _ = visible.shape
    flat = tree_mask.view(-1)
    if mode == QLEN_ONLY:
        flat[: bs * n * n].view(bs, n, n).copy_(visible)
    elif mode == FULL_MASK:
        lengths = seq_len.view(bs, 1, 1)
        first = (lengths.cumsum(0) - lengths) * n + torch.arange(bs).view(bs, 1, 1) * n * n
        row = torch.arange(n).view(1, n, 1)
        flat[first + row * (lengths + n) + lengths + torch.arange(n)] = visible.to(flat.dtype)
    elif mode == QLEN_ONLY_BITPACKING:
        if n > _WORD_BITS.get(flat.dtype, 0):
            raise ValueError(
                f"build_tree_kernel_efficient_cpu: {n} draft tokens do not fit "
                f"a {flat.dtype} mask word"
            )
        words = (visible.to(torch.int64) << torch.arange(n)).sum(-1)
        flat[: bs * n].copy_(words.view(-1))
    else:
        raise ValueError(f"build_tree_kernel_efficient_cpu: unknown tree mask mode {mode}")
