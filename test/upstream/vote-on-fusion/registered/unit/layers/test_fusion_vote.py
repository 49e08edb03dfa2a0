"""Unit tests for the vote on the fusion workspace: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.layers import flashinfer_comm_fusion as fusion

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


class TestFusionVote(CustomTestCase):
    def test_a_vote_that_fails_ends_the_rank(self):
        """It used to be logged at debug level, and the rank went on by itself."""

        def broken():
            raise RuntimeError("planted")

        class Parallel:
            @property
            def tp_group(self):
                broken()

        with patch.object(fusion, "get_parallel", return_value=Parallel()):
            with self.assertRaisesRegex(RuntimeError, "planted"):
                fusion._sync_allreduce_unavailable_across_tp()

    def test_a_rank_that_is_alone_keeps_what_it_has(self):
        alone = SimpleNamespace(tp_group=SimpleNamespace(world_size=1, cpu_group=None))
        for unavailable in (False, True):
            with (
                patch.object(fusion, "get_parallel", return_value=alone),
                patch.object(fusion, "_flashinfer_allreduce_unavailable", unavailable),
            ):
                fusion._sync_allreduce_unavailable_across_tp()
                self.assertIs(fusion.is_flashinfer_allreduce_unavailable(), unavailable)


if __name__ == "__main__":
    unittest.main()
