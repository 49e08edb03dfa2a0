"""Additive masks for keys aligned to the right: the last column is each request's newest key.

With that alignment all causal masks of one query count are slices of one matrix, whatever the
number of keys, and requests of different lengths in one batch differ in their padding on the left
only.
"""

import torch

_NEG_INF = float("-inf")
_MIN_COLUMNS = 1024

_Key = tuple[int, int, int, int, torch.dtype]

_causal_tables: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}
_last_tree: tuple[_Key, torch.Tensor, torch.Tensor] | None = None


def causal_bias(
    queries: int, group: int, rows: int, keys: int, window: int, dtype: torch.dtype
) -> torch.Tensor:
    """Mask of the last `queries` positions over the last `keys` positions, folded to [rows, keys].

    Query i sees keys up to its own position and, where `window` > 0, only the last `window` of
    those. The result is a slice of a table that grows with demand; do not write to it.
    """
    table = _causal_tables.get((group, window, dtype))
    if table is None or table.shape[0] <= queries * group or table.shape[1] < keys:
        held_rows, held_columns = (1, 0) if table is None else table.shape
        table = _causal_table(
            _power_of_two(max(queries, (held_rows - 1) // group)),
            _power_of_two(max(keys, held_columns, _MIN_COLUMNS)),
            group,
            window,
            dtype,
        )
        _causal_tables[(group, window, dtype)] = table
    first_row = table.shape[0] - 1 - queries * group
    first_column = table.shape[1] - keys
    return table[first_row : first_row + rows, first_column:]


def _causal_table(
    queries: int, keys: int, group: int, window: int, dtype: torch.dtype
) -> torch.Tensor:
    """[queries * group + 1, keys]; the extra last row serves as spare row."""
    newest = torch.arange(keys - queries, keys).repeat_interleave(group).unsqueeze(1)
    distance = newest - torch.arange(keys)
    hidden = distance < 0
    if window > 0:
        hidden |= distance >= window
    table = torch.zeros(queries * group + 1, keys, dtype=dtype)
    table[:-1].masked_fill_(hidden, _NEG_INF)
    return table


def tree_bias(
    tree: torch.Tensor, group: int, rows: int, keys: int, window: int, dtype: torch.dtype
) -> torch.Tensor:
    """Mask of draft trees over their prefixes and themselves, folded to [B, 1, rows, keys].

    The layers of a forward pass ask for the same mask one after the other, so the last one is
    remembered, by the tree's content. Do not write to the result.

    Args:
        tree: bool [B, n, n], row i true at the nodes that node i sees, itself included.
        window: where > 0, node i stands at its depth in the tree, not at its row number.
    """
    global _last_tree
    key = (group, rows, keys, window, dtype)
    last = _last_tree
    if last is not None and last[0] == key and torch.equal(last[1], tree):
        return last[2]
    bias = _tree_bias(tree, *key)
    _last_tree = (key, tree.clone(), bias)
    return bias


def _tree_bias(
    tree: torch.Tensor, group: int, rows: int, keys: int, window: int, dtype: torch.dtype
) -> torch.Tensor:
    batch, n, _ = tree.shape
    visible = torch.ones(batch, n, keys, dtype=torch.bool)
    visible[:, :, keys - n :] = tree
    if window > 0:
        depth = tree.sum(-1) - 1
        position = torch.cat((torch.arange(n - keys, 0).expand(batch, -1), depth), dim=1)
        visible &= depth.unsqueeze(2) - position.unsqueeze(1) < window
    bias = torch.zeros(batch, 1, rows, keys, dtype=dtype)
    hidden = ~visible if group == 1 else ~visible.repeat_interleave(group, dim=1)
    bias[:, 0, : n * group].masked_fill_(hidden, _NEG_INF)
    return bias


def padding_bias(lengths: torch.Tensor, keys: int, dtype: torch.dtype) -> torch.Tensor:
    """Mask that hides the padding left of each request's keys: [B, 1, 1, keys]."""
    hidden = torch.arange(keys) < keys - lengths.view(-1, 1, 1, 1)
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, _NEG_INF)


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()
