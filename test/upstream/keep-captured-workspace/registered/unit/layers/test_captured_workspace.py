"""Unit tests for a fusion workspace that captured graphs hold: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.distributed import parallel_state
from sglang.srt.layers import flashinfer_comm_fusion as fusion

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


def _capture() -> None:
    """Enter a capture as far as to its first line; there is no device here."""
    group = MagicMock()
    group.device_module.Stream.side_effect = NotImplementedError
    capture = parallel_state.GroupCoordinator.graph_capture(group)
    try:
        capture.__enter__()
    except NotImplementedError:
        pass


class TestCapturedWorkspace(CustomTestCase):
    def test_rows_that_do_not_fit_do_not_replace_it(self):
        manager = MagicMock(initialized=True, world_size=2, rank=0, hidden_dim=64)
        manager.is_buffer_size_sufficient.return_value = False
        manager.group = (None, None)
        group = SimpleNamespace(device_group=None, cpu_group=None)
        with (
            patch.object(fusion, "_flashinfer_comm", object()),
            patch.object(fusion, "_flashinfer_allreduce_unavailable", False),
            patch.object(fusion, "is_flashinfer_available", return_value=True),
            patch.object(fusion, "uses_cutedsl_ar_fusion", return_value=False),
            patch.object(fusion, "resolve_fusion_group", return_value=(2, 0, group)),
            patch.object(
                fusion,
                "resolve_flashinfer_allreduce_fusion_backend",
                return_value="mnnvl",
            ),
            patch.object(fusion, "_get_workspace_manager", return_value=manager),
            patch.object(fusion, "_sync_allreduce_unavailable_across_tp"),
        ):
            fusion.ensure_workspace_initialized(hidden_dim=128)
            manager.initialize.assert_called_once()  # nothing captured yet
            _capture()
            self.assertFalse(fusion.ensure_workspace_initialized(hidden_dim=128))
            manager.initialize.assert_called_once()


if __name__ == "__main__":
    unittest.main()
