"""`murmur_hash32_cpu` against MurmurHash3 on bytes."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.sgl_kernel import reference
from unit.sgl_kernel.inputs import quick

words = st.integers(0, 2**32 - 1)
hash_op = torch.ops.sgl_kernel.murmur_hash32_cpu.default


def expected(seeds: list[int], positions: list[int], columns: list[int]) -> list[list[int]]:
    return [
        [
            reference.murmur3(
                seed.to_bytes(8, "little")
                + (position % 2**32).to_bytes(4, "little")
                + (column % 2**32).to_bytes(4, "little")
            )
            for column in columns
        ]
        for seed, position in zip(seeds, positions, strict=True)
    ]


@quick(80)
@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), words), min_size=1, max_size=4),
    st.lists(words, min_size=1, max_size=8),
    st.sampled_from([torch.uint64, torch.int64]),
)
def test_hash_equals_reference(
    rows: list[tuple[int, int]], columns: list[int], position_dtype: torch.dtype
) -> None:
    seeds, positions = [seed for seed, _ in rows], [position for _, position in rows]
    hashed = hash_op(
        torch.tensor(seeds, dtype=torch.uint64),
        torch.tensor(positions, dtype=position_dtype),
        torch.tensor(columns),
    )
    assert hashed.dtype == torch.uint32
    assert hashed.tolist() == expected(seeds, positions, columns)


def test_known_value_of_the_reference() -> None:
    """The published test vector of MurmurHash3 x86 32 for four zero bytes and seed 0."""
    assert reference.murmur3(b"\0\0\0\0") == 0x2362F9DE
    assert reference.murmur3(b"test") == 0xBA6BD213


def test_int32_positions_and_negative_seed() -> None:
    hashed = hash_op(torch.tensor([-1]), torch.tensor([5], dtype=torch.int32), torch.tensor([0, 1]))
    assert hashed.tolist() == expected([2**64 - 1], [5], [0, 1])


def test_uniform_enough_to_sample_from() -> None:
    """64 bins over 65,536 columns: chi-square with 63 degrees of freedom, below its 1e-6 tail."""
    hashed = hash_op(torch.tensor([1234]), torch.tensor([7]), torch.arange(1 << 16)).long()
    counts = torch.bincount(hashed[0] >> 26, minlength=64).double()
    chi_square = float(((counts - 1024) ** 2 / 1024).sum())
    assert chi_square < 132.0


def test_shape_is_known_to_the_compiler() -> None:
    seed, columns = (torch.empty(n, dtype=torch.int64, device="meta") for n in (3, 11))
    hashed = hash_op(seed, seed, columns)
    assert (tuple(hashed.shape), hashed.dtype) == ((3, 11), torch.uint32)


def test_control_one_flipped_bit_is_noticed() -> None:
    right = hash_op(torch.tensor([1 << 40]), torch.tensor([3]), torch.tensor([9])).tolist()
    assert right == expected([1 << 40], [3], [9])
    assert right != expected([1 << 41], [3], [9])
    assert right != expected([1 << 40], [2], [9])
    assert right != expected([1 << 40], [3], [8])
