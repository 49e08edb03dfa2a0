"""The CPU operators of `sgl-kernel/` give what the CUDA side gives for the same inputs.

The CUDA side is what SGLang itself calls on a GPU (`sglang.kernels`: Triton and compiled at run
time), through its own dispatching functions. Indices must be equal; attention is compared with
float64 as well, so that a shared error cannot hide.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from kit import cpu_operators
from unit.sgl_kernel.inputs import draft, generator

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16
WIDTH = 64
UNTOUCHED = -7
SEEDS = range(6)


def there(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Copies on the GPU."""
    return [tensor.to(DEVICE, copy=True) for tensor in tensors]


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs.cpu(), rtol=0, atol=0)


def table(seed: int, batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A request-to-token table with all cells different; rows, starts and ends of ranges in it."""
    rng = generator(seed)
    cells = torch.randperm((batch + 2) * WIDTH, generator=rng).int().view(batch + 2, WIDTH)
    rows = torch.randperm(batch + 2, generator=rng)[:batch]
    start = torch.randint(0, 30, (batch,), generator=rng)
    return cells, rows, start, start + torch.randint(1, 30, (batch,), generator=rng)


# (topk, steps, draft tokens): the chain the first user runs, and trees of several shapes.
SHAPES = [(1, 3, 4), (1, 5, 6), (4, 3, 8), (8, 5, 32), (2, 1, 3), (4, 5, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", [0, 1], ids=["full-mask", "draft-tokens-only"])
def test_tree_and_verify(shape: tuple[int, int, int], mode: int) -> None:
    from sglang.kernels.ops.speculative.spec_tree import (
        TreeMaskMode,
        build_tree_kernel_efficient_func,
        verify_tree_greedy_func,
    )

    ours = cpu_operators.load()
    topk, steps, n = shape
    for seed in SEEDS:
        batch = 1 + 3 * seed
        tree = draft(seed, batch, topk, steps, n)
        lengths = torch.arange(batch) * 5 + 3
        cells = n * n * batch + (int(lengths.sum()) * n if mode == 0 else 0)
        outputs = (
            torch.ones(cells, dtype=torch.bool),
            torch.empty(batch * n, dtype=torch.int64),
            *(torch.full((batch, n), -1) for _ in range(3)),
        )
        theirs = there(*outputs)
        inputs = (tree.parent_list, tree.selected, lengths)
        ours.build_tree_kernel_efficient_cpu(*inputs, *outputs, topk, steps, n, mode)
        build_tree_kernel_efficient_func(
            *there(*inputs), *theirs, topk, steps, n, TreeMaskMode(mode)
        )
        for left, right in zip(outputs, theirs, strict=True):
            same(left, right)

        rng = generator(seed + 1000)
        links = outputs[2:]
        tokens = torch.randint(0, 3, (batch, n), generator=rng)  # few, so that paths get long
        predicted = torch.randint(0, 3, (batch * n,), generator=rng)
        results = (
            torch.full((batch * n,), UNTOUCHED, dtype=torch.int32),
            torch.full((batch, steps + 1), -1, dtype=torch.int32),
            torch.full((batch,), UNTOUCHED, dtype=torch.int32),
        )
        found = there(*results)
        ours.verify_tree_greedy_cpu(*results, tokens, *links, predicted.view(batch, n))
        moved = there(tokens, *links, predicted.view(batch, n))
        verify_tree_greedy_func(*found, *moved, topk=topk)
        for left, right in zip(results, found, strict=True):
            same(left, right)
        assert int(results[2].max()) > 0 or batch < 4, "no draft was ever accepted"


@pytest.mark.parametrize("seed", SEEDS)
def test_cache_locations(seed: int) -> None:
    from sglang.kernels.ops.speculative import cache_locs, eagle
    from sglang.srt.mem_cache.allocation import assign_req_to_token_pool_func

    ours = cpu_operators.load()
    batch = 1 + 5 * seed
    cells, rows, start, end = table(seed, batch)

    draft_tokens = 6  # the widest range of `assign_extend_cache_locs_func` is of equal lengths
    ends = start + draft_tokens
    out = torch.empty(batch * draft_tokens, dtype=torch.int64)
    ours.assign_extend_cache_locs_cpu(rows, cells, start, ends, out, WIDTH)
    moved = there(rows, cells, start, ends)
    found = cache_locs.assign_extend_cache_locs_func(*moved, batch, draft_tokens, DEVICE)
    same(out, found)

    topk, columns = 4, 5
    out = torch.empty(batch * topk * columns, dtype=torch.int64)
    ours.assign_draft_cache_locs_contiguous_cpu(rows, cells, start, out, WIDTH, topk, columns)
    moved = there(rows, cells, start, torch.empty_like(out))
    cache_locs.assign_draft_cache_locs_contiguous_func(*moved, topk, columns)
    same(out, moved[3])

    new = torch.arange(int((end - start).sum())) + 100_000
    written = cells.clone()
    ours.assign_req_to_token_pool_cpu(rows, written, start, end, new, WIDTH)
    moved = there(rows, cells, start, end, new)
    assign_req_to_token_pool_func(*moved, batch)
    same(written, moved[1])

    rng = generator(seed + 50)
    index = torch.arange(batch * 4, dtype=torch.int32)
    index[torch.rand(batch * 4, generator=rng) < 0.4] = -1
    slots = torch.randperm(batch * 4, generator=rng)
    packed = torch.full((batch * 4,), UNTOUCHED)
    found = there(packed)[0]
    ours.fill_accept_out_cache_loc_cpu(index, slots, packed)
    eagle.fill_accept_out_cache_loc_func(*there(index, slots), found, batch * 4)
    same(packed, found)


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens(seed: int) -> None:
    from sglang.kernels.ops.sampling.murmur_hash import murmur_hash32
    from sglang.kernels.ops.speculative import eagle
    from sglang.kernels.ops.speculative.multi_layer_eagle import rotate_input_ids

    ours = cpu_operators.load()
    rng = generator(seed)
    batch, stride = 1 + 4 * seed, 4
    tokens = torch.randint(0, 50_000, (batch * stride,), generator=rng, dtype=torch.int32)
    lens = torch.randint(1, stride + 1, (batch,), generator=rng, dtype=torch.int32)
    bonus = torch.empty(batch, dtype=torch.int32)
    ours.fill_bonus_tokens_cpu(tokens, lens, bonus, stride)
    moved = there(tokens, lens, torch.empty_like(bonus))
    eagle.fill_bonus_tokens_func(*moved, stride, batch)
    same(bonus, moved[2])

    lengths = torch.randint(1, 30, (batch,), generator=rng, dtype=torch.int32)
    starts = (lengths.cumsum(0) - lengths).int()
    ids = torch.randint(0, 50_000, (int(lengths.sum()),), generator=rng)
    last = torch.randint(0, 50_000, (batch,), generator=rng)
    moved = there(ids, starts, lengths, last)
    ours.rotate_input_ids_cpu(ids, starts, lengths, last)
    same(ids, rotate_input_ids(*moved))

    seeds = torch.randint(-(2**62), 2**62, (batch,), generator=rng)
    positions = torch.randint(0, 2**31, (batch,), generator=rng)
    columns = torch.arange(1500)
    theirs = murmur_hash32(*there(seeds, positions, columns))
    left, right = ours.murmur_hash32_cpu(seeds, positions, columns), theirs.cpu()
    assert torch.equal(left.view(torch.int32), right.view(torch.int32))


@pytest.mark.parametrize("seed", SEEDS)
def test_kv_copy(seed: int) -> None:
    """Rows of all layers move at once, onto rows that are sources themselves."""
    from sglang.kernels.ops.kvcache.cache_move import copy_all_layer_kv_cache_func

    ours = cpu_operators.load()
    rng = generator(seed)
    buffers = [torch.randn(64, 4, 32, generator=rng).bfloat16() for _ in range(6)]
    theirs = there(*buffers)
    source = torch.randperm(64, generator=rng)[:16].sort().values
    target = torch.arange(int(source[0]), int(source[0]) + 16) if seed % 2 else torch.arange(16)
    target = target.clamp_max(63).unique()
    source = source[: target.numel()]
    strides = torch.tensor([buffer[0].numel() * buffer.element_size() for buffer in buffers])

    def pointers(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.uint64)

    ours.copy_all_layer_kv_cache_cpu(pointers(buffers).view(torch.int64), strides, target, source)
    copied = there(pointers(theirs), strides, target, source)
    bytes_per_tile = 128
    copy_all_layer_kv_cache_func(
        *copied,
        target.numel(),
        32,
        {
            "bytes_per_tile": bytes_per_tile,
            "byte_tiles": -(-int(strides[0]) // bytes_per_tile),
            "num_warps": 4,
        },
    )
    for left, right in zip(buffers, theirs, strict=True):
        same(left, right)


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Attention of one request in float64: q [new, heads, dim], k and v [length, kv heads, dim]."""
    group = q.shape[1] // k.shape[1]
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values)


def close(ours: torch.Tensor, theirs: torch.Tensor, expected: torch.Tensor) -> None:
    """Both within what bfloat16 outputs cost, of float64 and so of each other."""
    size = float(expected.norm())
    for found in (ours, theirs.cpu()):
        error = float((found.double() - expected).norm()) / size
        assert error < 6e-3, f"relative error {error:.2e}"


# (query heads, KV heads, head size) of the embedded pair, of the tiny pair, of a Llama 8B.
HEADS = [(9, 3, 64), (8, 8, 32), (32, 8, 128)]


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("tree", [False, True], ids=["causal", "tree"])
def test_extend_attention(heads: tuple[int, int, int], tree: bool) -> None:
    """Verify and prefill: new tokens against a cached prefix, causal or along a draft tree."""
    from unit.sgl_kernel.inputs import random_tree

    ours = cpu_operators.load()
    query, kv, dim = heads
    rng = generator(query)
    prefixes, new = [0, 17, 130, 1], ([4] * 4 if tree else [5, 33, 1, 64])
    lengths = [prefix + count for prefix, count in zip(prefixes, new, strict=True)]
    slots = torch.randperm(sum(lengths) + 1, generator=rng)[: sum(lengths)]
    k, v = (torch.randn(sum(lengths) + 1, kv, dim, generator=rng).to(DTYPE) for _ in range(2))
    q = torch.randn(sum(new), query, dim, generator=rng).to(DTYPE)
    masks = [
        random_tree(rng, count) if tree else torch.ones(count, count).tril().bool() for count in new
    ]
    ends = torch.tensor(lengths).cumsum(0)
    pieces = [slots[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    cells = torch.zeros(len(new), max(lengths) + 8, dtype=torch.int32)
    for row, piece in enumerate(pieces):
        cells[row, : piece.numel()] = piece.int()
    starts = torch.tensor([sum(new[:b]) for b in range(len(new))], dtype=torch.int32)
    fresh = torch.cat([piece[-count:] for piece, count in zip(pieces, new, strict=True)])
    out = torch.empty_like(q)
    ours.extend_attention_cpu(
        *(q, k[fresh], v[fresh], out, k, v, 1.0, 1.0, cells, torch.arange(len(new))),
        torch.tensor(lengths),
        torch.tensor(new, dtype=torch.int32),
        starts,
        *(max(new), dim**-0.5, 0.0, False, 0, None, None),
        torch.stack(masks).flatten() if tree else None,
        True,
    )
    visible = [
        torch.cat([torch.ones(count, prefix, dtype=torch.bool), mask], 1)
        for count, prefix, mask in zip(new, prefixes, masks, strict=True)
    ]
    expected = torch.cat(
        [
            exact(q[start : start + count], k[piece], v[piece], seen)
            for start, count, piece, seen in zip(starts.tolist(), new, pieces, visible, strict=True)
        ]
    )
    close(out, _triton_extend(q, k, v, slots, prefixes, new, visible), expected)


def _triton_extend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor,
    prefixes: list[int],
    new: list[int],
    visible: list[torch.Tensor],
) -> torch.Tensor:
    from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd_unified

    def offsets(counts: list[int]) -> torch.Tensor:
        return torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)

    lengths = [prefix + count for prefix, count in zip(prefixes, new, strict=True)]
    (out,) = there(torch.empty_like(q))
    extend_attention_fwd_unified(
        there(q)[0],
        out,
        *there(k, v),
        1.0,
        1.0,
        *there(offsets(new), offsets(lengths), slots, torch.tensor(prefixes, dtype=torch.int32)),
        max(new),
        custom_mask=there(torch.cat([seen.flatten() for seen in visible]))[0],
        mask_indptr=there(offsets([seen.numel() for seen in visible]).long())[0],
        is_causal=True,
    )
    return out


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_decode_attention(heads: tuple[int, int, int]) -> None:
    """One new token a request, which the CPU operator also puts into the cache."""
    from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd

    ours = cpu_operators.load()
    query, kv, dim = heads
    rng = generator(query + 1)
    lengths = [1, 18, 131, 300]
    slots = torch.randperm(sum(lengths) + 1, generator=rng)[: sum(lengths)]
    k, v = (torch.randn(sum(lengths) + 1, kv, dim, generator=rng).to(DTYPE) for _ in range(2))
    q = torch.randn(len(lengths), query, dim, generator=rng).to(DTYPE)
    ends = torch.tensor(lengths).cumsum(0).tolist()
    pieces = [slots[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    expected = torch.cat(
        [
            exact(q[b : b + 1], k[piece], v[piece], torch.ones(1, piece.numel()).bool())
            for b, piece in enumerate(pieces)
        ]
    )

    split, largest = 4, 8
    (theirs,) = there(torch.empty_like(q))
    decode_attention_fwd(
        *there(q, k, v),
        theirs,
        *there(torch.tensor([0, *ends], dtype=torch.int32), slots),
        torch.empty(len(lengths), query, largest, dim, device=DEVICE),
        torch.empty(len(lengths), query, largest, device=DEVICE),
        torch.full((len(lengths),), split, dtype=torch.int32, device=DEVICE),
        largest,
        dim**-0.5,
        1.0,
        1.0,
    )

    cells = torch.zeros(len(lengths), max(lengths) + 8, dtype=torch.int32)
    for row, piece in enumerate(pieces):
        cells[row, : piece.numel()] = piece.int()
    newest = torch.stack([piece[-1] for piece in pieces])
    key, value = k[newest], v[newest]
    k[newest] = v[newest] = float("nan")
    out = torch.empty_like(q)
    ours.decode_attention_cpu(
        *(q, k, v, 1.0, 1.0, out, key, value, newest, None, cells, torch.arange(len(lengths))),
        torch.tensor(lengths),
        *(dim**-0.5, 0.0, False, 0, None, None),
    )
    close(out, theirs, expected)
