"""Which cores a rank of a CPU server runs on, and whether its share of the memory can be known.

Upstream gives every rank a NUMA node of its own and stops with an assertion where there are more
ranks than nodes, unless `SGLANG_CPU_OMP_THREADS_BIND` spells the cores out. Here the cores are
dealt out. Memory cannot be dealt out the same way: each rank sizes its KV cache by the free memory
of its node, which it then shares, so the pool has to be given.

Called by: `srt/utils/numa_utils.py` and `srt/arg_groups/validation_hook.py` (patch
`cpu-thread-binding`). Imports without torch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)


def share_of_cores(nodes: Sequence[Sequence[int]], rank: int, ranks: int) -> tuple[int, ...]:
    """The cores of `rank`, one of `ranks` that are more than `nodes` (core ids by NUMA node).

    Ranks go to nodes in blocks as even as possible, neighbours together. Within a node each rank
    gets an equal run of cores; where ranks outnumber cores, a core is shared by neighbours. Every
    core is used, and no rank spans two nodes.

    Raises:
        ValueError: `rank` is none of `ranks`, or there is no core to deal out.
    """
    if not 0 <= rank < ranks:
        raise ValueError(
            f"rank {rank} (the worker's global device id) is none of {ranks} ranks "
            "(dp_size * tp_size * pp_size); set SGLANG_CPU_OMP_THREADS_BIND to one group of cores "
            "for each worker of this host, separated by '|'"
        )
    if not all(nodes) or not nodes:
        raise ValueError(f"a NUMA node without cores cannot serve a rank; cores by node: {nodes}")
    node = rank * len(nodes) // ranks
    first = -(-node * ranks // len(nodes))
    beyond = -(-(node + 1) * ranks // len(nodes))
    place, members, cores = rank - first, beyond - first, nodes[node]
    if members >= len(cores):
        return (cores[place * len(cores) // members],)
    return tuple(cores[place * len(cores) // members : (place + 1) * len(cores) // members])


def bind(cpu_ids_by_node: Sequence[str], rank: int, ranks: int) -> str:
    """`share_of_cores` in the notation of upstream ("0,1,2" per node, the same for the answer).

    Also narrows this process's OpenMP pool to its share, unless OMP_NUM_THREADS is set: without
    AMX upstream binds nothing, and a pool as wide as the host in every rank collapses throughput.
    """
    nodes = [[int(cpu) for cpu in cpus.split(",")] for cpus in cpu_ids_by_node]
    share = share_of_cores(nodes, rank, ranks)
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(len(share))
    logger.info(
        "%d ranks share %d NUMA node(s): rank %d runs on %d core(s)",
        *(ranks, len(nodes), rank, len(share)),
    )
    return ",".join(map(str, share))


def check_memory_per_rank(cfg: Any) -> None:
    """Refuse a CPU server whose ranks cannot know how much memory is theirs.

    `cfg` has the resolved server arguments. Runs in the launching process, before any rank exists.

    Raises:
        ValueError: more ranks on this host than NUMA nodes and no `--max-total-tokens`.
    """
    if cfg.device != "cpu" or cfg.max_total_tokens is not None:
        return
    ranks = max(1, cfg.dp_size * cfg.tp_size * cfg.pp_size // cfg.nnodes)
    if ranks == 1:
        return
    from sglang.srt.utils import get_cpu_ids_by_node

    nodes = len(get_cpu_ids_by_node())
    if ranks > nodes:
        raise ValueError(
            f"--max-total-tokens is not set, and {ranks} ranks (dp_size {cfg.dp_size} * tp_size "
            f"{cfg.tp_size} * pp_size {cfg.pp_size}) share {nodes} NUMA node(s): the memory of one "
            "rank cannot be known, each would take that of a whole node. Give the size of the KV "
            "cache, for example --max-total-tokens 16384, or run at most one rank per node"
        )
