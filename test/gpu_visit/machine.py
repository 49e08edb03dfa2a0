"""What a visit has to share out: GPUs and their memory, and the servers that a host carries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kit.gpu_record import ask_gpus

GB = 1e9
# A small server has 5 GB of host memory, as seen on an H200 host; hosts of GPUs have 8 GB a core.
SERVERS_A_CORE = 1.25
# A server under load keeps its scheduler, front end and client busy; a quiet benchmark has a
# few of them, and as many cores again must be idle.
QUIET_CORES = 12
USABLE = 0.9  # of a GPU's memory


@dataclass(frozen=True)
class Machine:
    """`gpus` are what CUDA_VISIBLE_DEVICES calls them, `gpu_gb` the memory of the smallest.

    `servers` is how many small servers the host carries at once, `cores` are the numbers of the
    cores that this process may use.
    """

    gpus: tuple[str, ...]
    gpu_gb: float
    servers: int
    cores: tuple[int, ...] = ()

    @property
    def roomy(self) -> bool:
        """Whether each GPU has cores of its own, so that a benchmark on it is not disturbed by
        one on another GPU."""
        return len(self.cores) >= QUIET_CORES * len(self.gpus)

    def cores_of(self, gpus: Sequence[str]) -> tuple[int, ...]:
        """Those that belong to these of its GPUs: the cores in equal parts, in order."""
        part = len(self.cores) // len(self.gpus)
        own = [self.gpus.index(gpu) for gpu in gpus]
        return tuple(core for at in own for core in self.cores[at * part : (at + 1) * part])


def of_host() -> Machine:
    """This one. GPUs that CUDA_VISIBLE_DEVICES hides are not there."""
    seen = ask_gpus(("index", "memory.total"))
    ids = [row["index"] for row in seen]
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        ids = [name.strip() for name in visible.split(",") if name.strip()] if ids else []
    sizes = [float(row["memory.total"].split()[0]) * 2**20 / GB for row in seen]
    return Machine(tuple(ids), min(sizes, default=0.0), carried(), cores())


def stand_in(gpus: int, gpu_gb: float) -> Machine:
    """As if the host had such GPUs: to see a plan where there are none."""
    each = 16  # cores of a GPU, as hosts of H200s have
    known = tuple(range(each * gpus))
    return Machine(tuple(map(str, range(gpus))), gpu_gb, int(SERVERS_A_CORE * len(known)), known)


def carried() -> int:
    """Servers that the host carries at once. By its cores, of which a start keeps two busy: memory
    says less, because a machine may be given it only as it is used."""
    return int(SERVERS_A_CORE * len(cores()))


def cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))
