"""What a visit has to share out: GPUs and their memory, and the servers that a host carries."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kit.gpu_record import ask_gpus

GB = 1e9
# A small server has 5 GB of host memory, as seen on an H200 host; hosts of GPUs have 8 GB a core.
SERVERS_A_CORE = 1.25
USABLE = 0.9  # of a GPU's memory


@dataclass(frozen=True)
class Machine:
    """`gpus` are what CUDA_VISIBLE_DEVICES calls them, `gpu_gb` the memory of the smallest.

    `servers` is how many small servers the host carries at once.
    """

    gpus: tuple[str, ...]
    gpu_gb: float
    servers: int


def of_host() -> Machine:
    """This one. GPUs that CUDA_VISIBLE_DEVICES hides are not there."""
    seen = ask_gpus(("index", "memory.total"))
    ids = [row["index"] for row in seen]
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        ids = [name.strip() for name in visible.split(",") if name.strip()] if ids else []
    sizes = [float(row["memory.total"].split()[0]) * 2**20 / GB for row in seen]
    return Machine(tuple(ids), min(sizes, default=0.0), carried())


def stand_in(gpus: int, gpu_gb: float) -> Machine:
    """As if the host had such GPUs: to see a plan where there are none."""
    return Machine(tuple(map(str, range(gpus))), gpu_gb, max(20, carried()))


def carried() -> int:
    """Servers that the host carries at once. By its cores, of which a start keeps two busy: memory
    says less, because a machine may be given it only as it is used."""
    return int(SERVERS_A_CORE * (os.cpu_count() or 1))
