"""What the benchmark chooses from tables whose right answer is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_spec.comm.choose import KIB, Table, choose

SIZES = [4 * KIB << step for step in range(10)]
WIDE = 32 * KIB * KIB


def table(**microseconds: Callable[[int], float]) -> Table:
    """Eight rounds without noise; sizes in bytes."""
    sizes = [*SIZES, WIDE]
    return {
        name: {size: [cost(size)] * 8 for size in sizes if name != "pcie_ipc" or size < WIDE}
        for name, cost in microseconds.items()
    }


def nccl(size: int) -> float:
    return 30 + size / (20 * KIB)


def test_noise_changes_nothing() -> None:
    found = choose(table(plain=nccl, ll=lambda size: 0.98 * nccl(size)), True, False)
    assert not found.changes and found.ratio == 1.0
    assert set(found.by_size.values()) == {"plain"}


def test_a_faster_environment_is_chosen() -> None:
    found = choose(table(plain=nccl, tree=lambda size: 0.7 * nccl(size)), False, False)
    assert found.nccl == "tree" and found.ratio == pytest.approx(0.7)


def test_an_environment_that_slows_prefill_is_not() -> None:
    def ll(size: int) -> float:
        return 0.5 * nccl(size) if size < WIDE else 2 * nccl(size)

    assert not choose(table(plain=nccl, ll=ll), False, False).changes


def test_the_crossing_of_pcie_ipc_is_its_bound() -> None:
    ipc = table(plain=nccl, pcie_ipc=lambda size: 5 + size / (8 * KIB))
    found = choose(ipc, True, False)
    assert found.ipc_bytes == 256 * KIB  # 25 us are saved, and lost again at 333 KiB
    assert found.by_size[256 * KIB] == "pcie_ipc" and found.by_size[512 * KIB] == "plain"
    assert found.worst == 1.0 and found.ratio < 0.75
    assert not choose(ipc, False, False).changes


def test_a_custom_all_reduce_that_wins_stays() -> None:
    times = table(plain=lambda size: 4 + size / (200 * KIB), nccl=nccl, pcie_ipc=nccl, ll=nccl)
    found = choose(times, True, True)
    assert found.custom and not found.changes


def test_a_custom_all_reduce_that_loses_is_switched_off() -> None:
    times = table(plain=nccl, nccl=nccl, pcie_ipc=lambda size: 5 + size / (40 * KIB))
    found = choose(times, True, True)
    assert not found.custom and found.ipc_bytes == 2 * KIB * KIB
    assert found.by_size[WIDE] == "nccl"


def test_the_rounds_that_choose_are_not_those_that_judge() -> None:
    lucky = {"plain": {64 * KIB: [30.0] * 8}, "ll": {64 * KIB: [10.0, 60.0] * 4}}
    found = choose(lucky, False, False)
    assert found.nccl == "ll" and found.ratio == 2.0
