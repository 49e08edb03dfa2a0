"""One rank of `comm-bench`: builds SGLang's own group, then measures rounds on command.

Reads a line of JSON a command from stdin (`{"do": "round"}`, `{"do": "end"}`), writes answers as
lines that begin with "@", the reason of its end among them. Everything else on stdout and stderr
is talk. Run by `bench`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

HIDDEN = 2048  # elements of a row: 4 KiB in bfloat16, so every size is whole rows
IN_A_GRAPH = 20
REPLAYS = 10
WIDE = 4 * 1024 * 1024  # bytes; larger messages are prefill's
BUILD_S = 240


def main(spec: dict[str, Any]) -> None:
    rank, world = spec["rank"], spec["world"]
    cuda = spec["device"] == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
    _meet(rank, world, cuda, spec["meeting"])
    bench = Bench(_group(rank, world, cuda, spec["custom"]), spec["sizes"], cuda)
    _answer({"ready": bench.prepare(only_pcie_ipc=spec["only_pcie_ipc"])})
    for line in sys.stdin:
        if json.loads(line)["do"] == "end":
            break
        _answer({"microseconds": bench.measure()})
    # Not destroyed: a peer that left first would be waited for.
    sys.stdout.flush()


def _meet(rank: int, world: int, cuda: bool, meeting: str) -> None:
    """All ranks, and SGLang's group of them: its custom all-reduce asks that before it is built."""
    from sglang.srt.distributed.parallel_state import init_distributed_environment

    init_distributed_environment(
        world_size=world,
        rank=rank,
        distributed_init_method=f"file://{meeting}",
        local_rank=rank,
        backend="nccl" if cuda else "gloo",
        timeout=BUILD_S,
    )


def _answer(content: dict[str, Any]) -> None:
    print("@" + json.dumps(content), flush=True)


def _group(rank: int, world: int, cuda: bool, custom: bool) -> Any:
    """The tensor parallel group as SGLang builds it, with or without its custom all-reduce."""
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    return GroupCoordinator(
        [list(range(world))],
        local_rank=rank,
        torch_distributed_backend="nccl" if cuda else "gloo",
        use_pynccl=cuda,
        use_mscclpp=False,
        use_custom_allreduce=custom and cuda,
        use_torch_symm_mem_all_reduce=False,
        use_hpu_communicator=False,
        use_xpu_communicator=False,
        group_name="tp",
    )


class Bench:
    """Graphs (or, on a CPU, calls) of each library at each size, and their times.

    Libraries: "plain" is what SGLang chooses by itself, "nccl" the same group with the custom
    all-reduce out of the way (where they differ), "pcie_ipc" its kernels, where they could be made.
    """

    def __init__(self, group: Any, sizes: list[int], cuda: bool) -> None:
        self.group, self.sizes, self.cuda = group, sizes, cuda
        self.calls: dict[str, dict[int, Callable[[], None]]] = {}
        # A graph does not own its inputs, and the next capture gives freed memory back to the
        # driver: a replay would then read what is no longer there.
        self._inputs: list[torch.Tensor] = []
        self.notes: dict[str, str] = {}

    def prepare(self, only_pcie_ipc: bool) -> dict[str, Any]:
        """Capture everything, and check each library's sum once."""
        if only_pcie_ipc:
            self._add_pcie_ipc()
            return self._about()
        custom = self.group.ca_comm
        on = custom is not None and not custom.disabled
        self.notes["plain"] = type(custom).__name__ if on else ("NCCL" if self.cuda else "gloo")
        self._add("plain", self.group.all_reduce)
        if on:
            with self._without_custom():
                self._add("nccl", self.group.all_reduce)
        return self._about()

    def _about(self) -> dict[str, Any]:
        nccl = getattr(self.group.pynccl_comm, "nccl_version", None)
        return {"notes": self.notes, "nccl": nccl, "torch": torch.__version__}

    def measure(self) -> dict[str, dict[int, float]]:
        """Microseconds of one all-reduce: library -> size, the libraries in turns."""
        found: dict[str, dict[int, float]] = {name: {} for name in self.calls}
        for size in self.sizes:
            for name, calls in self.calls.items():
                if size in calls:
                    found[name][size] = self._time(calls[size], REPLAYS if size <= WIDE else 2)
        return found

    def _add(self, name: str, reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
        for size in self.sizes:
            self._check(name, size, reduce)
            zeros = self._rows(size, 0.0)
            calls = self.calls.setdefault(name, {})
            calls[size] = self._captured(reduce, zeros) if self.cuda else _call(reduce, zeros)

    def _add_pcie_ipc(self) -> None:
        from sglang.srt.distributed.device_communicators.pcie_ipc_ar import PcieIpcCommunicator

        comm = PcieIpcCommunicator(
            group=self.group.device_group, device=self.group.device, cpu_group=self.group.cpu_group
        )
        comm.prepare(hidden=HIDDEN, max_rows=max(self._decode_sizes()) // (2 * HIDDEN))
        if comm.disabled or comm._workspace is None:
            raise RuntimeError("the PCIe-IPC workspace could not be built: see the lines above")
        self.notes["pcie_ipc"] = f"workspace of {comm.max_numel * 2} bytes"
        for size in self._decode_sizes():
            rows = self._rows(size, 0.0)
            if comm.should_pcie_ipc_ar(rows):
                self._check("pcie_ipc", size, comm.pcie_ipc_all_reduce)
                calls = self.calls.setdefault("pcie_ipc", {})
                calls[size] = self._captured(comm.pcie_ipc_all_reduce, rows)

    def _decode_sizes(self) -> list[int]:
        return [size for size in self.sizes if size <= WIDE]

    def _rows(self, size: int, value: float) -> torch.Tensor:
        shape = (size // (2 * HIDDEN), HIDDEN)
        return torch.full(shape, value, dtype=torch.bfloat16, device=self.group.device)

    def _check(self, name: str, size: int, reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
        world = dist.get_world_size()
        total = reduce(self._rows(size, dist.get_rank() + 1.0))
        if self.cuda:
            torch.cuda.synchronize()
        expected = world * (world + 1) / 2
        if not bool((total == expected).all()):
            raise RuntimeError(
                f"{name} at {size} bytes adds up {total.flatten()[0]}, not {expected}"
            )

    def _captured(
        self, reduce: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor
    ) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        self._inputs.append(rows)
        with self.group.graph_capture() as context:
            reduce(rows)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=context.stream):
                for _ in range(IN_A_GRAPH):
                    reduce(rows)
        torch.cuda.synchronize()
        return graph.replay

    @contextlib.contextmanager
    def _without_custom(self) -> Iterator[None]:
        custom = self.group.ca_comm
        if custom is None:
            yield
            return
        self.group.ca_comm = None
        try:
            yield
        finally:
            self.group.ca_comm = custom

    def _time(self, call: Callable[[], None], replays: int) -> float:
        dist.barrier(group=self.group.cpu_group)
        call()
        if not self.cuda:
            began = time.perf_counter()
            for _ in range(replays):
                call()
            return (time.perf_counter() - began) / replays * 1e6
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(replays):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1000 / (replays * IN_A_GRAPH)


def _call(reduce: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> Callable[[], None]:
    def call() -> None:
        reduce(rows)

    return call


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        # Libraries have the last word in the log when a rank ends, so the reason goes this way.
        _answer({"failed": f"{type(error).__name__}: {error}"})
        raise
