"""What a server holds between rounds, and whether that grows."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from kit import gpu_record
from kit.traces import Traces
from sglang_spec import process
from sglang_spec.client import Client

MIB = 2**20
# Growth of the later part of a run that is more than allocators and caches that still fill up.
ALLOWED = {"host_memory": 24 * MIB, "gpu_memory": 64 * MIB, "files": 6, "shared_memory": 0}
SHARE = {"host_memory": 0.02}  # of what is held, where that is more
FEWEST = 6  # samples; below that a trend cannot be told
REST = 30.0
WARM = 300  # requests; until then code paths and buffers are used for the first time


@dataclass(frozen=True)
class Sample:
    """Between two rounds, with nothing running and an empty cache; None: cannot be seen from here.

    Attributes:
        requests: sent so far.
        kv_tokens: KV slots in use.
        host_memory: bytes, resident, summed over all processes of the server. Not the private part:
            a forked server's pages become private by being read.
        gpu_memory: bytes in use on the GPUs that can be seen, other programs' as well.
        files: open file descriptors of all of them.
        shared_memory: files in /dev/shm.
    """

    requests: int
    kv_tokens: int | None = None
    host_memory: int | None = None
    files: int | None = None
    shared_memory: int | None = None
    gpu_memory: int | None = None


@dataclass(frozen=True)
class Leak:
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"leak of {self.kind}: {self.detail}"


def sample(client: Client, pid: int | None, requests: int, gpu: bool) -> Sample:
    """Flushes the cache, which the server refuses while anything holds KV."""
    client.flush_cache(120)
    kv = _kv_at_rest(client)
    memory = used_gpu_memory() if gpu else None
    if pid is None:
        return Sample(requests, kv, gpu_memory=memory)
    host, files = 0, 0
    for member in process.tree(pid):
        try:
            host += member.memory_info().rss
            files += member.num_fds()
        except psutil.NoSuchProcess:
            continue  # a helper that ended meanwhile
    return Sample(requests, kv, host, files, len(Traces.of(pid).segments), memory)


def _kv_at_rest(client: Client) -> int:
    """KV slots in use. The server tells its load a moment after it has answered; what is still held
    after `REST` seconds stays held."""
    deadline = time.monotonic() + REST
    while True:
        loads = client.get("/v1/loads").json()["loads"]
        kv = sum(int(load["num_used_tokens"]) for load in loads)
        if not kv or time.monotonic() > deadline:
            return kv
        time.sleep(0.1)


def used_gpu_memory() -> int:
    """Bytes in use on the GPUs that CUDA_VISIBLE_DEVICES names, or on all; by whom is not known."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    found = gpu_record.ask_gpus(("index", "uuid", "memory.used"))
    seen = [gpu for gpu in found if named == [""] or {gpu["index"], gpu["uuid"]} & set(named)]
    return sum(int(gpu["memory.used"].split()[0]) for gpu in seen) * MIB


def leaks(samples: Sequence[Sample]) -> list[Leak]:
    """KV that is held at rest, and all else that grows from the middle third to the last."""
    found = [
        Leak("kv", f"{one.kv_tokens} tokens held after {one.requests} requests, at rest")
        for one in samples
        if one.kv_tokens
    ][:1]
    if len(samples) < FEWEST:
        return found
    third = len(samples) // 3
    for kind, allowed in ALLOWED.items():
        values = [getattr(one, kind) for one in samples]
        early = kind in ("host_memory", "gpu_memory") and samples[-1].requests < WARM
        if None in values or early:
            continue
        middle = statistics.median(values[-2 * third : -third])
        last = statistics.median(values[-third:])
        if last - middle > max(allowed, SHARE.get(kind, 0) * middle):
            found.append(Leak(kind, f"{middle:.0f}, later {last:.0f} of {_unit(kind)}"))
    return found


def _unit(kind: str) -> str:
    return "bytes" if kind.endswith("memory") and kind != "shared_memory" else "files"


def figures(samples: Sequence[Sample]) -> dict[str, Any]:
    """First, middle and last sample and the limits, for the record."""
    if not samples:
        return {}
    chosen = [samples[0], samples[len(samples) // 2], samples[-1]]
    return {
        "samples": len(samples),
        "trend_told": len(samples) >= FEWEST and samples[-1].requests >= WARM,
        "first_middle_last": [asdict(one) for one in chosen],
        "allowed_growth": ALLOWED,
        "kv_tokens_at_rest": max(one.kv_tokens or 0 for one in samples),
    }
