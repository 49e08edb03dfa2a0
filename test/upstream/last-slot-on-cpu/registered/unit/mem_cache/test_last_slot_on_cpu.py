"""Unit tests for the slot that a request's KV ends at: no server, no model loading."""

import unittest
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.mem_cache import allocation

register_cpu_ci(est_time=10, suite="base-a-test-cpu")


class TestLastSlotOnCpu(CustomTestCase):
    def test_a_table_on_the_cpu_needs_no_triton(self):
        table = torch.arange(24, dtype=torch.int32).reshape(3, 8)
        rows, lengths = torch.tensor([2, 0, 1]), torch.tensor([3, 8, 0])
        for backend in ("triton", "flashinfer", "intel_amx", "torch_native"):
            with patch.object(
                allocation, "attention_backends", return_value=(backend, backend)
            ):
                last = allocation.get_last_loc(table, rows, lengths)
            self.assertEqual(last.tolist(), [18, 7, -1], backend)


if __name__ == "__main__":
    unittest.main()
