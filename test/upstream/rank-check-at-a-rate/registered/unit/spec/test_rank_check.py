"""Unit tests for the comparison of what ranks accept: no server, no model loading."""

import time
import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

import torch

from sglang.srt.managers.scheduler_components import batch_result_processor
from sglang.srt.runtime_context import get_context
from sglang.srt.utils import rank_consensus_checker

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


class _Ended(Exception):
    """Stands for the end of the process."""


def _gathers(other: list):
    """A peer's events beside those of this rank, in place of the collective."""

    def gather(found, events, group):
        found[:] = [events, other]

    return gather


class TestRankCheck(CustomTestCase):
    def test_a_divergence_names_ranks_and_values(self):
        mine = ["verify step 1: [4]", "verify step 2: [4]"]
        theirs = ["verify step 1: [4]", "verify step 2: [3]"]
        with (
            patch.object(rank_consensus_checker, "_sync_groups", [object()]),
            patch.object(torch, "equal", return_value=False),
            patch.object(torch.distributed, "all_reduce"),
            patch.object(
                torch.distributed, "get_process_group_ranks", return_value=[0, 1]
            ),
            patch.object(torch.distributed, "all_gather_object", _gathers(theirs)),
            patch.object(rank_consensus_checker.os, "_exit", side_effect=_Ended),
            self.assertLogs(level="CRITICAL") as logs,
            self.assertRaises(_Ended),
        ):
            rank_consensus_checker._check_for_consensus(mine)
        self.assertIn(
            "ranks disagree: rank 0: verify step 2: [4]; rank 1: verify step 2: [3]",
            "\n".join(logs.output),
        )

    def test_each_verify_result_is_compared(self):
        """The step's values reach the thread that compares, whatever follows in the scheduler."""
        compared = []
        fields = SimpleNamespace(
            next_token_ids=torch.tensor([5, 6, 0, 0, 7, 8, 9, 0]),
            accept_lens=torch.tensor([2, 3]),
        )
        result = MagicMock(**vars(fields))
        processor = MagicMock()
        with (
            get_context().override_server_args(),
            patch.object(rank_consensus_checker, "_sync_groups", [object()]),
            patch.object(
                rank_consensus_checker, "_create_sync_groups", return_value=[object()]
            ),
            patch.object(rank_consensus_checker, "_all_reduce_min_int", return_value=0),
            patch.object(
                rank_consensus_checker, "_check_for_consensus", compared.extend
            ),
            patch.object(
                batch_result_processor,
                "_get_speculative_output_stride",
                side_effect=[4],
            ),
        ):
            from sglang.srt.spec_hardening import rank_check

            rank_check.configure([object()], 1)
            kind = batch_result_processor.SchedulerBatchResultProcessor
            try:
                kind._resolve_spec_v2_tokens(processor, result, MagicMock(reqs=[]))
            finally:
                for _ in range(200):
                    if compared:
                        break
                    time.sleep(0.02)
        self.assertEqual(
            compared,
            ["verify step 1: accept lengths [2, 3], tokens [[5, 6], [7, 8, 9]]"],
        )


if __name__ == "__main__":
    unittest.main()
