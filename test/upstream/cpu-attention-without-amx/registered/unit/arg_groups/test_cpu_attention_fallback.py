"""Unit tests for the CPU attention fallback: no server, no model loading."""

import sys
import unittest
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import torch

from sglang.srt.arg_groups import overrides
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=9, suite="base-a-test-cpu")

_TORCH_OPERATORS = ("decode_attention_cpu", "extend_attention_cpu")


def _resolve(has_amx: bool, brings: tuple = (), backend: str = "intel_amx") -> dict:
    """What becomes of the backend on a host whose sgl_kernel brings the named operators."""
    package = ModuleType("sgl_kernel")
    if brings:
        package.build_draft_decode_metadata_cpu = lambda *arguments: None
    operators = SimpleNamespace(**{name: None for name in brings})
    view = SimpleNamespace(attention_backend=backend, device="cpu")
    with (
        patch.dict(sys.modules, {"sgl_kernel": package}),
        patch.object(torch.ops, "sgl_kernel", operators, create=True),
        patch.object(
            overrides, "get_platform", return_value=SimpleNamespace(has_amx=has_amx)
        ),
    ):
        return overrides._attention_backend_platform_fallbacks(view)


class TestCpuAttentionFallback(CustomTestCase):
    def test_operators_serve_without_amx(self):
        self.assertEqual(_resolve(has_amx=False, brings=_TORCH_OPERATORS), {})

    def test_falls_back_where_operators_are_missing(self):
        fallback = {"attention_backend": "torch_native"}
        self.assertEqual(_resolve(has_amx=False), fallback)
        self.assertEqual(_resolve(has_amx=False, brings=_TORCH_OPERATORS[:1]), fallback)

    def test_amx_is_as_before(self):
        self.assertEqual(_resolve(has_amx=True), {})
        self.assertEqual(_resolve(has_amx=False, backend="torch_native"), {})


if __name__ == "__main__":
    unittest.main()
