"""Which library reduces a message of a given size, in the order in which SGLang 0.5.23 asks them.

The order is that of `GroupCoordinator.all_reduce` and `_resolve_outplace_all_reduce_method`
(`distributed/parallel_state.py`): MSCCL++, custom all-reduce, NCCL symmetric memory, PCIe-IPC,
torch symmetric memory, NCCL. The fused kernel is asked before all of them, where a norm follows.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
# Limits of 0.5.23: FUSE_ALLREDUCE_MAX_BATCH_SIZE; CustomAllreduce._MAX_CAR_SIZE;
# SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB; TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES.
FUSION_ROWS = 2048
LEGACY_BYTES = 8 * MIB
V2_BYTES = 16 * MIB
TORCH_SYMM_BYTES = {2: 64 * MIB, 4: 64 * MIB, 6: 128 * MIB, 8: 128 * MIB}
PACK = 8  # elements of 16 bytes, the least that PCIe-IPC moves


@dataclass(frozen=True)
class Active:
    """What is on. Sizes in bytes, 0 for off; `custom` names the implementation."""

    ranks: int
    row_bytes: int
    bf16: bool = True
    fusion: str = ""
    mscclpp: bool = False
    custom: str = ""
    custom_bytes: int = 0
    symmetric: bool = False
    pcie_ipc_bytes: int = 0
    torch_symm: bool = False


@dataclass(frozen=True)
class Row:
    """One line of the table: the library of one reduction."""

    what: str
    rows: int
    bytes: int
    graph: str
    eager: str
    why: str


def row(what: str, rows: int, on: Active) -> Row:
    size = rows * on.row_bytes
    plain, why = _plain(size, on)
    graph = eager = plain
    if plain == "NCCL":
        graph, eager = "NCCL (pynccl)", "NCCL (torch)"
    if on.fusion and rows <= FUSION_ROWS:
        graph, eager = (f"fused ({on.fusion}), else {name}" for name in (graph, eager))
        why = f"a norm follows; {why}"
    return Row(what, rows, size, graph, eager, why)


def _plain(size: int, on: Active) -> tuple[str, str]:
    if on.ranks < 2:
        return "none", "one rank has nothing to reduce"
    if on.mscclpp and size <= MIB:
        return "MSCCL++ or next", "where --enable-mscclpp has a tuned kernel for this size"
    if size <= on.custom_bytes and size % 16 == 0:
        return on.custom, f"serves up to {on.custom_bytes // MIB} MiB"
    if on.symmetric:
        return "NCCL (symmetric memory)", "--enable-symm-mem"
    elements = size // 2
    if on.bf16 and size <= on.pcie_ipc_bytes and elements >= PACK * on.ranks:
        return "PCIe-IPC", f"serves up to {size_text(on.pcie_ipc_bytes)}"
    if on.torch_symm and size < TORCH_SYMM_BYTES.get(on.ranks, 0):
        return "torch symmetric memory", "--enable-torch-symm-mem"
    return "NCCL", "nothing before it takes this size" if _anything(on) else "nothing else is on"


def _anything(on: Active) -> bool:
    return bool(on.custom_bytes or on.pcie_ipc_bytes or on.torch_symm)


def size_text(size: int) -> str:
    """Bytes for people: 14 KiB, 1.75 MiB."""
    if size >= MIB:
        return f"{size / MIB:.4g} MiB"
    return f"{size / 1024:.4g} KiB"
