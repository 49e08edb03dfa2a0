"""Unit tests for a custom all-reduce on all ranks or on none: no server, no model loading."""

import multiprocessing
import tempfile
import unittest
from unittest.mock import patch

import torch
import torch.distributed as dist

from sglang.srt.distributed import parallel_state
from sglang.srt.distributed.device_communicators import custom_all_reduce
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_WORLD_SIZE = 2


class _AllReduce:
    """Meets its peers, as the real ones do to exchange handles; rank 1 may fail after that."""

    fails = False

    def __init__(self, group, device):
        met = [None] * _WORLD_SIZE
        dist.all_gather_object(met, dist.get_rank(), group=group)
        if _AllReduce.fails and dist.get_rank() == 1:
            raise RuntimeError("planted")
        self.disabled = False


def _make_group(rank: int, folder: str, fails: bool, answers) -> None:
    """One rank: make a group with a custom all-reduce, tell whether this rank would use it."""
    _AllReduce.fails = fails
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=_WORLD_SIZE,
    )
    with (
        patch.object(
            custom_all_reduce,
            "dispatch_custom_allreduce",
            lambda group, device: _AllReduce,
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
            use_pynccl=False,
            use_mscclpp=False,
            use_custom_allreduce=True,
            use_torch_symm_mem_all_reduce=False,
            use_hpu_communicator=False,
            use_xpu_communicator=False,
            group_name="test",
        )
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total, group=group.cpu_group)
    answers.put((rank, group.ca_comm is not None, total.item()))


class TestAllReduceVote(CustomTestCase):
    def _ranks(self, fails: bool):
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                context.Process(target=_make_group, args=(rank, folder, fails, answers))
                for rank in range(_WORLD_SIZE)
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(60)
                rank.kill()
        self.assertEqual([rank.exitcode for rank in ranks], [0, 0])
        return sorted(answers.get(timeout=10) for _ in ranks)

    def test_all_ranks_use_what_all_have(self):
        self.assertEqual(self._ranks(False), [(0, True, 3.0), (1, True, 3.0)])

    def test_a_rank_that_fails_takes_it_from_all(self):
        self.assertEqual(self._ranks(True), [(0, False, 3.0), (1, False, 3.0)])


if __name__ == "__main__":
    unittest.main()
