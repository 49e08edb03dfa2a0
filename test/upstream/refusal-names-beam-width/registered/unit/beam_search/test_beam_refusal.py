"""Unit tests for what a refused beam search is told: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.beam_search.coordinator import BeamCoordinator
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


class TestBeamRefusal(CustomTestCase):
    def test_the_field_is_named(self):
        server = SimpleNamespace(
            spec_algorithm=SpeculativeAlgorithm.from_string("EAGLE3")
        )
        asked = MagicMock()
        asked.sampling_params.beam_width = 2
        said = BeamCoordinator.validate_and_init(server, asked, asked)
        self.assertIn("beam_width", said)
        self.assertIn("speculati", said)


if __name__ == "__main__":
    unittest.main()
