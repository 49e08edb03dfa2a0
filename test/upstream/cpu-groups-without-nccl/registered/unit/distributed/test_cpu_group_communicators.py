"""Unit tests for the communicators of groups of CPU devices: no server, no model loading."""

import multiprocessing
import tempfile
import unittest
from unittest.mock import patch

import torch
import torch.distributed as dist

from sglang.srt.distributed import parallel_state
from sglang.srt.distributed.device_communicators import pynccl
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=12, suite="base-a-test-cpu")

_WORLD_SIZE = 2


def _make_group(rank: int, folder: str, answers: multiprocessing.Queue) -> None:
    """One rank: make a group that asks for NCCL, add the ranks up, tell what was built."""
    built = []
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=_WORLD_SIZE,
    )
    with (
        # The library is there on every host with torch's CUDA wheel; a driver is not.
        patch.object(
            pynccl.PyNcclCommunicator,
            "__init__",
            lambda self, *arguments, **named: built.append(named["device"].type),
        ),
        patch.object(
            parallel_state,
            "_group_coordinator_device",
            return_value=torch.device("cpu"),
        ),
    ):
        group = parallel_state.GroupCoordinator(
            group_ranks=[list(range(_WORLD_SIZE))],
            local_rank=rank,
            torch_distributed_backend="gloo",
            use_pynccl=True,
            use_mscclpp=False,
            use_custom_allreduce=False,
            use_torch_symm_mem_all_reduce=False,
            use_hpu_communicator=False,
            use_xpu_communicator=False,
            group_name="test",
        )
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total, group=group.cpu_group)
    answers.put((rank, group.pynccl_comm is None and not built, total.item()))


class TestCpuGroupCommunicators(CustomTestCase):
    def test_no_nccl_communicator_for_cpu_devices(self):
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                context.Process(target=_make_group, args=(rank, folder, answers))
                for rank in range(_WORLD_SIZE)
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(60)
                rank.kill()
        self.assertEqual([rank.exitcode for rank in ranks], [0, 0])
        found = sorted(answers.get(timeout=10) for _ in ranks)
        self.assertEqual(found, [(0, True, 3.0), (1, True, 3.0)])


if __name__ == "__main__":
    unittest.main()
