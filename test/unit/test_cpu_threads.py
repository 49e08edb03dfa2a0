"""Cores dealt out to CPU ranks, and the refusal of a pool size that cannot be known."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang.srt.spec_hardening import cpu_threads
from sglang.srt.utils import numa_utils


@st.composite
def hosts(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Cores by NUMA node, and a number of ranks that is at least the number of nodes."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    cores = iter(range(sum(sizes)))
    nodes = [[next(cores) for _ in range(size)] for size in sizes]
    return nodes, draw(st.integers(len(nodes), 24))


@given(hosts())
def test_every_core_is_used_and_no_rank_spans_nodes(host: tuple[list[list[int]], int]) -> None:
    nodes, ranks = host
    shares = [cpu_threads.share_of_cores(nodes, rank, ranks) for rank in range(ranks)]
    for share in shares:
        assert share and sum(set(share) <= set(node) for node in nodes) == 1
    assert {cpu for share in shares for cpu in share} == {cpu for node in nodes for cpu in node}


@given(hosts())
def test_shares_are_even(host: tuple[list[list[int]], int]) -> None:
    nodes, ranks = host
    shares = [cpu_threads.share_of_cores(nodes, rank, ranks) for rank in range(ranks)]
    for node in nodes:
        users = [sum(cpu in share for share in shares) for cpu in node]
        sizes = [len(share) for share in shares if set(share) <= set(node)]
        assert max(users) - min(users) <= 1, "a core serves two ranks more than its neighbour"
        assert max(sizes) - min(sizes) <= 1, "a rank has two cores more than its neighbour"
        assert min(users) == 1 or max(sizes) == 1, "cores are shared while others are whole"


def test_eight_ranks_on_two_cores() -> None:
    shares = [cpu_threads.share_of_cores([[0, 1]], rank, 8) for rank in range(8)]
    assert shares == [(0,)] * 4 + [(1,)] * 4


def test_a_rank_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match=r"rank 4 .*none of 4 ranks.*SGLANG_CPU_OMP_THREADS_BIND"):
        cpu_threads.share_of_cores([[0, 1]], 4, 4)


def test_upstream_binding_deals_cores_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_CPU_OMP_THREADS_BIND", raising=False)
    monkeypatch.setattr(numa_utils, "get_cpu_ids_by_node", lambda: ["0,1,2,3", "4,5,6,7"])
    found = [numa_utils.init_threads_binding(numa_index=rank, world_size=4) for rank in range(4)]
    assert found == ["0,1", "2,3", "4,5", "6,7"]


def test_upstream_binding_is_unchanged_where_nodes_suffice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SGLANG_CPU_OMP_THREADS_BIND", raising=False)
    monkeypatch.setattr(numa_utils, "get_cpu_ids_by_node", lambda: ["0,1,2,3", "4,5,6,7"])
    assert numa_utils.init_threads_binding(numa_index=1, world_size=2) == "4,5,6,7"
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", "0|2|3")
    assert numa_utils.init_threads_binding(numa_index=2, world_size=3) == "3"


@dataclass(frozen=True)
class Arguments:
    device: str = "cpu"
    max_total_tokens: int | None = None
    dp_size: int = 1
    tp_size: int = 8
    pp_size: int = 1
    nnodes: int = 1


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglang.srt.utils.get_cpu_ids_by_node", lambda: ["0,1", "2,3"])


@pytest.mark.usefixtures("two_nodes")
def test_unknown_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--max-total-tokens.*8 ranks.*2 NUMA node.*16384"):
        cpu_threads.check_memory_per_rank(Arguments())


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize(
    "fine",
    [
        Arguments(max_total_tokens=4096),
        Arguments(device="cuda"),
        Arguments(tp_size=2),
        Arguments(tp_size=4, nnodes=2),
    ],
)
def test_known_memory_is_not_refused(fine: Arguments) -> None:
    cpu_threads.check_memory_per_rank(fine)
