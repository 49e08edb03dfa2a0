"""Cache-location operators and token bookkeeping against plain slices."""

from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from unit.sgl_kernel.inputs import generator, quick

WIDTH = 40
UNTOUCHED = -7


class Table(NamedTuple):
    cells: torch.Tensor  # int32 [rows, WIDTH], all different
    rows: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor

    @property
    def pieces(self) -> list[torch.Tensor]:
        """The ranges, cut out one by one."""
        bounds = zip(self.rows.tolist(), self.start.tolist(), self.end.tolist(), strict=True)
        return [self.cells[row, first:last] for row, first, last in bounds]


def make_table(seed: int, ranges: list[tuple[int, int]], dtype: torch.dtype) -> Table:
    rng = generator(seed)
    count = len(ranges) + 2
    cells = torch.randperm(count * WIDTH, generator=rng).int().view(count, WIDTH)
    rows = torch.randperm(count, generator=rng)[: len(ranges)].to(dtype)
    start = torch.tensor([first for first, _ in ranges], dtype=dtype)
    return Table(cells, rows, start, start + torch.tensor([n for _, n in ranges], dtype=dtype))


ranges = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8)
seeds = st.integers(0, 2**31)
index_dtypes = st.sampled_from([torch.int32, torch.int64])


@quick(60)
@given(seeds, ranges, index_dtypes, index_dtypes, st.integers(0, 3))
def test_extend_locs_are_the_slices_in_order(
    seed: int,
    drawn: list[tuple[int, int]],
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    spare: int,
) -> None:
    table = make_table(seed, drawn, dtype)
    expected = torch.cat(table.pieces).to(out_dtype)
    out = torch.full((expected.numel() + spare,), UNTOUCHED, dtype=out_dtype)
    assign_extend_cache_locs_cpu(table.rows, table.cells, table.start, table.end, out, WIDTH)
    assert torch.equal(out[: expected.numel()], expected)
    assert out[expected.numel() :].tolist() == [UNTOUCHED] * spare


@quick(60)
@given(seeds, ranges, index_dtypes)
def test_pool_assignment_writes_the_ranges_only(
    seed: int, drawn: list[tuple[int, int]], dtype: torch.dtype
) -> None:
    table = make_table(seed, drawn, dtype)
    expected = table.cells.clone()
    slots = torch.arange(sum(n for _, n in drawn)) + 10_000
    at = 0
    for row, piece, first in zip(table.rows, table.pieces, table.start, strict=True):
        expected[row, first : first + piece.numel()] = slots[at : at + piece.numel()].int()
        at += piece.numel()
    assign_req_to_token_pool_cpu(table.rows, table.cells, table.start, table.end, slots, WIDTH)
    assert torch.equal(table.cells, expected)


@quick(40)
@given(seeds, st.lists(st.integers(0, 15), min_size=1, max_size=8), st.integers(1, 4))
def test_draft_locs_and_metadata_agree_on_the_layout(
    seed: int, lengths: list[int], topk: int
) -> None:
    """Step i of branch k writes the slot that the branch's own table row holds at that position."""
    steps = 6
    table = make_table(seed, [(length, 0) for length in lengths], torch.int64)
    batch = len(lengths)
    seq_lens = torch.tensor(lengths)
    out = torch.empty(batch * topk * steps, dtype=torch.int64)
    assign_draft_cache_locs_contiguous_cpu(
        table.rows, table.cells, seq_lens, out, WIDTH, topk, steps
    )
    metadata = build_draft_decode_metadata_cpu(
        table.cells, table.rows, seq_lens, topk, steps, WIDTH
    )
    assert metadata.dtype == table.cells.dtype
    assert metadata.shape[0] == batch * topk
    for b, length in enumerate(lengths):
        row = table.cells[int(table.rows[b])]
        own = out.view(batch, topk, steps)[b]
        assert own.flatten().tolist() == row[length : length + topk * steps].tolist()
        for k in range(topk):
            branch = metadata[b * topk + k]
            assert branch[:length].tolist() == row[:length].tolist()
            assert branch[length : length + steps].tolist() == own[k].tolist()


def test_metadata_at_the_edge_of_the_table() -> None:
    """One request has no room for its last branch: the others' rows are right all the same."""
    topk, steps = 2, 5
    table = make_table(0, [(WIDTH - 7, 0), (6, 0)], torch.int64)
    metadata = build_draft_decode_metadata_cpu(
        table.cells, table.rows, table.start, topk, steps, WIDTH
    )
    row = table.cells[int(table.rows[1])]
    assert metadata[3, : 6 + steps].tolist() == [*row[:6].tolist(), *row[11:16].tolist()]


def test_metadata_of_an_empty_batch() -> None:
    table = make_table(0, [(0, 0)], torch.int64)
    none = torch.empty(0, dtype=torch.int64)
    assert build_draft_decode_metadata_cpu(table.cells, none, none, 1, 3, WIDTH).shape[0] == 0


@quick(40)
@given(seeds, st.integers(1, 8), st.integers(1, 6), index_dtypes)
def test_accepted_slots_are_packed_to_the_front(
    seed: int, batch: int, width: int, dtype: torch.dtype
) -> None:
    rng = generator(seed)
    slots = torch.randperm(500, generator=rng)[: batch * width]
    index = torch.arange(batch * width, dtype=dtype).view(batch, width)
    index[torch.rand(batch, width, generator=rng) < 0.5] = -1
    out = torch.full((batch * width,), UNTOUCHED)
    fill_accept_out_cache_loc_cpu(index, slots, out)
    expected = [int(slots[i]) for i in index.flatten().tolist() if i != -1]
    assert out.tolist() == expected + [UNTOUCHED] * (batch * width - len(expected))


@quick(40)
@given(seeds, st.integers(1, 8), st.integers(1, 6), st.booleans())
def test_bonus_token_is_the_last_accepted(seed: int, batch: int, stride: int, flat: bool) -> None:
    rng = generator(seed)
    tokens = torch.randint(1000, (batch, stride), generator=rng)
    lens = torch.randint(1, stride + 1, (batch,), generator=rng, dtype=torch.int32)
    bonus = torch.full((batch,), UNTOUCHED, dtype=torch.int32)
    fill_bonus_tokens_cpu(tokens.flatten() if flat else tokens, lens, bonus, stride)
    assert bonus.tolist() == [int(tokens[b, int(lens[b]) - 1]) for b in range(batch)]


@quick(60)
@given(seeds, st.lists(st.integers(0, 9), min_size=1, max_size=8), st.booleans(), index_dtypes)
def test_rotation_shifts_each_request(
    seed: int, lens: list[int], select: bool, dtype: torch.dtype
) -> None:
    rng = generator(seed)
    ids = torch.randint(1000, (sum(lens) + 2,), generator=rng)
    new = torch.randint(1000, 2000, (len(lens), 1), generator=rng)
    starts = [sum(lens[:b]) for b in range(len(lens))]
    chosen = [s + max(0, n - 1) // 2 for s, n in zip(starts, lens, strict=True)]
    expected = ids.tolist()
    for b, (first, length) in enumerate(zip(starts, lens, strict=True)):
        if length > 0:
            shifted = expected[first + 1 : first + length]
            expected[first : first + length - 1] = shifted
            expected[chosen[b] if select else first + length - 1] = int(new[b])
    rotate_input_ids_cpu(
        ids,
        torch.tensor(starts, dtype=dtype),
        torch.tensor(lens, dtype=dtype),
        new,
        torch.tensor(chosen) if select else None,
    )
    assert ids.tolist() == expected


def test_control_one_wrong_cell_is_noticed() -> None:
    """The comparison with slices must fail when a single table cell differs."""
    table = make_table(3, [(2, 5), (0, 7)], torch.int64)
    out = torch.empty(12, dtype=torch.int64)
    assign_extend_cache_locs_cpu(table.rows, table.cells, table.start, table.end, out, WIDTH)
    assert torch.equal(out, torch.cat(table.pieces).long())
    table.cells[table.rows[1], 3] += 1
    assert not torch.equal(out, torch.cat(table.pieces).long())
