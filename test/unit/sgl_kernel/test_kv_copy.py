"""`copy_all_layer_kv_cache_cpu`: in place, every buffer, safe where targets are sources too."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import copy_all_layer_kv_cache_cpu
from unit.sgl_kernel.inputs import generator, quick

ROWS = 24
SHAPES = [(3, 64, torch.bfloat16), (2, 16, torch.float32), (1, 3, torch.uint8)]


def buffers(seed: int) -> list[torch.Tensor]:
    """K and V of a few layers, row sizes differing, one not a multiple of eight bytes."""
    rng = generator(seed)
    made = []
    for heads, dim, dtype in SHAPES:
        for _ in range(2):
            values = torch.randint(0, 200, (ROWS, heads, dim), generator=rng)
            made.append(values.to(dtype))
    return made


def copy(pool: list[torch.Tensor], target: torch.Tensor, source: torch.Tensor) -> None:
    copy_all_layer_kv_cache_cpu(
        torch.tensor([buffer.data_ptr() for buffer in pool], dtype=torch.uint64),
        torch.tensor([buffer.stride(0) * buffer.element_size() for buffer in pool]),
        target,
        source,
    )


def snapshot_copy(
    pool: list[torch.Tensor], target: torch.Tensor, source: torch.Tensor
) -> list[torch.Tensor]:
    """The result if every row is read before any is written."""
    results = []
    for buffer in pool:
        result = buffer.clone()
        for to, origin in zip(target.tolist(), source.tolist(), strict=True):
            result[to] = buffer[origin]
        results.append(result)
    return results


def row_by_row(
    pool: list[torch.Tensor], target: torch.Tensor, source: torch.Tensor
) -> list[torch.Tensor]:
    """The wrong result: rows copied one after the other, reading what was just written."""
    results = [buffer.clone() for buffer in pool]
    for result in results:
        for to, origin in zip(target.tolist(), source.tolist(), strict=True):
            result[to] = result[origin].clone()
    return results


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@quick(50)
@given(st.integers(0, 2**31), st.integers(0, ROWS))
def test_copy_equals_snapshot(seed: int, count: int) -> None:
    """Targets all different, sources arbitrary: the sets overlap in most draws."""
    rng = generator(seed)
    pool = buffers(seed)
    target = torch.randperm(ROWS, generator=rng)[:count]
    source = torch.randint(ROWS, (count,), generator=rng)
    expected = snapshot_copy(pool, target, source)
    copy(pool, target, source)
    assert same(pool, expected)


def test_compacting_an_accepted_path() -> None:
    """As verify does it: accepted rows move to the front of their request's window; unused entries
    of the fixed-size lists are copies of row 0 onto itself."""
    pool = buffers(1)
    source = torch.tensor([4, 6, 7, 11, 14, 17, 19, 0, 0])
    target = torch.tensor([4, 5, 6, 7, 14, 15, 16, 0, 0])
    expected = snapshot_copy(pool, target, source)
    copy(pool, target, source)
    assert same(pool, expected)


@pytest.mark.parametrize(
    ("target", "source"),
    [([5, 6, 7, 8], [4, 5, 6, 7]), ([3, 9], [9, 3])],
    ids=["shift up by one", "swap"],
)
def test_overlap_that_row_by_row_copying_gets_wrong(target: list[int], source: list[int]) -> None:
    pool = buffers(2)
    to, origin = torch.tensor(target), torch.tensor(source)
    expected, wrong = snapshot_copy(pool, to, origin), row_by_row(pool, to, origin)
    assert not same(expected, wrong), "the case does not tell the two apart"
    copy(pool, to, origin)
    assert same(pool, expected)


def test_int32_locations() -> None:
    pool = buffers(3)
    target = torch.tensor([1, 2], dtype=torch.int32)
    source = torch.tensor([8, 9], dtype=torch.int32)
    expected = snapshot_copy(pool, target, source)
    copy(pool, target, source)
    assert same(pool, expected)


def test_nothing_to_copy() -> None:
    pool = buffers(4)
    before = [buffer.clone() for buffer in pool]
    copy(pool, torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    assert same(pool, before)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 targets for 1 sources"):
        copy(buffers(5), torch.tensor([1, 2]), torch.tensor([3]))


def test_a_negative_row_is_refused_before_anything_is_written() -> None:
    pool = buffers(6)
    before = [buffer.clone() for buffer in pool]
    with pytest.raises(ValueError, match="negative row -1"):
        copy(pool, torch.tensor([1, 2]), torch.tensor([3, -1]))
    assert same(pool, before)


def test_control_one_wrong_row_is_noticed() -> None:
    pool = buffers(7)
    target, source = torch.tensor([1, 2, 3]), torch.tensor([8, 9, 10])
    expected = snapshot_copy(pool, target, source)
    copy(pool, target, torch.tensor([8, 9, 11]))
    assert not same(pool, expected)
