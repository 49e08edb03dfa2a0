"""Real ranks that build a group of SGLang, one of which may fail while it builds an all-reduce.

On the CPU the ranks meet over gloo, and a class that gathers over the group, as the real ones do,
stands where the custom all-reduce is. On GPUs it is the real one, over NCCL.
"""

from __future__ import annotations

import multiprocessing as mp
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Job = Callable[[int, int, str], dict[str, Any]]


def run(job: Job, ranks: int, fault: str, timeout: float = 600.0) -> list[dict[str, Any]]:
    """`job(rank, device count or 0, fault)` in `ranks` processes; what each returned or raised.

    A rank that is still at work when another one has raised is ended; its result is {}.
    """
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "store"
        pipes, processes = [], []
        for rank in range(ranks):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(job, rank, ranks, meeting, fault, theirs))
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        results = [{} for _ in range(ranks)]
        try:
            order = sorted(range(ranks), reverse=True)  # faults are planted in the last rank
            for rank in order:
                wait = 5.0 if any("raised" in one for one in results) else timeout
                if pipes[rank].poll(wait):
                    results[rank] = pipes[rank].recv()
        finally:
            for process in processes:
                process.terminate()
                process.join(10)
        return results


def _rank(job: Job, rank: int, ranks: int, meeting: Path, fault: str, pipe: Any) -> None:
    import torch
    from sglang.srt.distributed import parallel_state

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus:
        torch.cuda.set_device(rank)
    # With the group of all ranks: the real custom all-reduce asks it before it tests peers.
    parallel_state.init_distributed_environment(
        world_size=ranks,
        rank=rank,
        distributed_init_method=f"file://{meeting}",
        local_rank=rank,
        backend="nccl" if gpus else "gloo",
    )
    try:
        pipe.send(job(rank, gpus, fault))
    except Exception as error:
        pipe.send({"raised": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})


def build_groups(rank: int, gpus: int, faults: str) -> dict[str, Any]:
    """`build_group` once for each of the faults, which a space separates; "none" is none."""
    return {fault: build_group(rank, gpus, fault) for fault in faults.split()}


def build_group(rank: int, gpus: int, fault: str) -> dict[str, Any]:
    """A tensor parallel group, and the sum of (rank + 1) over it; faults: start, end, off."""
    import logging

    import torch
    import torch.distributed as dist
    from sglang.srt.distributed import parallel_state
    from sglang.srt.distributed.device_communicators import custom_all_reduce
    from sglang.srt.spec_hardening.comm import vote

    # Only where a rank is to hang does anybody wait that long.
    vote.TIMEOUT_S = 60.0 if gpus else 6.0 if fault == "start" else 300.0
    lines: list[str] = []
    collect = _Collect(lines)
    said: list[str] = []
    listen = _Collect(said, logging.WARNING)
    logging.getLogger("sglang").addHandler(listen)  # type: ignore[arg-type]
    logging.getLogger(vote.__name__).addHandler(collect)  # type: ignore[arg-type]
    real = custom_all_reduce.dispatch_custom_allreduce if gpus else lambda **_: OnCpu

    plain = custom_all_reduce.dispatch_custom_allreduce

    def dispatch(**kwargs: Any) -> Any:
        chosen = real(**kwargs)

        def build(group: Any, device: Any) -> Any:
            if fault == "start" and rank == 1:
                raise RuntimeError("planted before the first collective")
            made = chosen(group=group, device=device)
            if fault == "end" and rank == 1:
                made.disabled = True  # as one that was not finished: closing it meets nobody
                raise RuntimeError("planted at the end")
            if fault == "off":
                made.disabled = True
            return made

        return build

    custom_all_reduce.dispatch_custom_allreduce = dispatch
    world = dist.get_world_size()
    group = parallel_state.GroupCoordinator(
        [list(range(world))],
        local_rank=rank,
        torch_distributed_backend="nccl" if gpus else "gloo",
        use_pynccl=bool(gpus),
        use_mscclpp=False,
        use_custom_allreduce=True,
        use_torch_symm_mem_all_reduce=False,
        use_hpu_communicator=False,
        use_xpu_communicator=False,
        group_name="tp",
    )
    one = torch.full((4, 1024), rank + 1.0, device=group.device, dtype=torch.bfloat16)
    total = group.all_reduce(one)
    if gpus:
        torch.cuda.synchronize()
    custom_all_reduce.dispatch_custom_allreduce = plain
    logging.getLogger(vote.__name__).removeHandler(collect)  # type: ignore[arg-type]
    logging.getLogger("sglang").removeHandler(listen)  # type: ignore[arg-type]
    return {
        "custom": group.ca_comm is not None and not group.ca_comm.disabled,
        "total": float(total.float().mean()),
        "outcome": vote.outcomes.get("custom all-reduce", ""),
        "log": lines,
        "class": type(group.ca_comm).__name__,
        "said": said,
    }


class OnCpu:
    """A custom all-reduce that only meets its peers, as the real ones do to exchange handles."""

    def __init__(self, group: Any, device: Any) -> None:
        import torch.distributed as dist

        self.disabled = True
        met: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(met, dist.get_rank(group), group=group)
        assert met == list(range(len(met)))
        self.disabled = False

    def should_custom_ar(self, tensor: Any) -> bool:
        return False


class _Collect:
    """A logging handler without the logging: keeps the messages."""

    def __init__(self, lines: list[str], level: int = 0) -> None:
        self._lines, self.level = lines, level

    def handle(self, record: Any) -> bool:
        self._lines.append(record.getMessage())
        return True
