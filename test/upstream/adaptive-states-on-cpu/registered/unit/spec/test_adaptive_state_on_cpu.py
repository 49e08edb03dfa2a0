"""Unit tests for adaptive speculation without device graphs: no server, no model loading."""

import contextlib
import unittest
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.speculative import eagle_worker_v2

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


def _build_state(is_cpu: bool):
    """The runtime state for three steps, and how often a graph runner of the target was asked for.

    The attention backend of the CPU has no graph state, so a runner cannot be made there.
    """
    runner = MagicMock()
    runner.side_effect = NotImplementedError if is_cpu else None
    worker = MagicMock(
        _additional_graph_memory_usage={}, _additional_graph_time_usage={}
    )
    worker._override_worker_state.return_value = contextlib.nullcontext()
    with (
        patch.object(eagle_worker_v2, "_is_cpu", is_cpu),
        patch.object(eagle_worker_v2, "check_cuda_graph_backend", return_value=False),
        patch.object(eagle_worker_v2, "get_available_gpu_memory", return_value=1.0),
        patch.object(
            eagle_worker_v2, "_select_spec_graph_runner_cls", return_value=runner
        ),
    ):
        state = eagle_worker_v2.EAGLEWorkerV2.build_adaptive_runtime_state(
            worker, speculative_num_steps=3, speculative_num_draft_tokens=4
        )
    return state, runner.call_count


class TestAdaptiveStateOnCpu(CustomTestCase):
    def test_no_graph_runner_on_the_cpu(self):
        state, made = _build_state(is_cpu=True)
        self.assertIsNone(state.target_graph_runner)
        self.assertEqual((made, state.speculative_num_steps), (0, 3))

    def test_other_devices_have_one_as_before(self):
        state, made = _build_state(is_cpu=False)
        self.assertIsNotNone(state.target_graph_runner)
        self.assertEqual(made, 1)


if __name__ == "__main__":
    unittest.main()
