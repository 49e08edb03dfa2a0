"""Unit tests for sampling seeds on the CPU: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt import batch_invariant_ops
from sglang.srt.arg_groups import overrides
from sglang.srt.model_executor import model_runner

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


def _resolve(device: str, backend: str) -> dict:
    view = SimpleNamespace(
        enable_deterministic_inference=True, device=device, attention_backend=backend
    )
    return overrides._deterministic_attention_backend(view)


def _enables_triton_products(device: str) -> bool:
    """Whether a runner on this device replaces torch's matrix products by Triton kernels."""
    flags = SimpleNamespace(
        deterministic=SimpleNamespace(
            enable_deterministic_inference=True, rl_on_policy_target=None
        )
    )
    with (
        patch.object(model_runner, "get_exec", return_value=flags),
        patch.object(batch_invariant_ops, "enable_batch_invariant_mode") as enable,
    ):
        runner = SimpleNamespace(device=device)
        model_runner.ModelRunner.maybe_enable_batch_invariant_mode(runner)
    return enable.called


class TestCpuDeterministicInference(CustomTestCase):
    def test_the_cpu_backend_is_accepted(self):
        self.assertEqual(_resolve("cpu", "intel_amx"), {})

    def test_other_backends_are_refused_as_before(self):
        with self.assertRaises(ValueError):
            _resolve("cuda", "intel_amx")

    def test_triton_products_are_for_other_devices(self):
        self.assertFalse(_enables_triton_products("cpu"))
        self.assertTrue(_enables_triton_products("cuda"))


if __name__ == "__main__":
    unittest.main()
