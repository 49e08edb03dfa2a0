"""Unit tests for EAGLE workers that are left half done: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt import runtime_context
from sglang.srt.spec_hardening import construction, invariants
from sglang.srt.speculative import base_spec_worker, eagle_worker_v2

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

_BASES = {
    "EagleDraftWorker": "EagleDraftWorkerBase",
    "EAGLEWorkerV2": "BaseSpecWorker",
}


class _FirstCallFails(Exception):
    pass


def _left_early(name: str):
    """A worker whose constructor fails in the first call that it makes."""
    base = getattr(base_spec_worker, _BASES[name])
    worker = object.__new__(getattr(eagle_worker_v2, name))
    with patch.object(base, "__init__", side_effect=_FirstCallFails):
        try:
            worker.__init__(SimpleNamespace(), 0, 0, SimpleNamespace())
        except _FirstCallFails:
            return worker
    raise AssertionError(f"{name} does not construct its base first")


class TestWorkerConstruction(CustomTestCase):
    def test_every_attribute_exists_from_the_first_line(self):
        for name in _BASES:
            worker = _left_early(name)
            missing = set(invariants.BY_CLASS[name]) - set(vars(worker))
            self.assertEqual(missing, set(), name)

    def test_the_check_names_what_was_not_set(self):
        worker = _left_early("EAGLEWorkerV2")
        worker._hosts_draft = False
        spec = SimpleNamespace(speculative_adaptive=False)
        with (
            patch.object(runtime_context, "get_spec", return_value=spec),
            self.assertRaisesRegex(
                invariants.IncompleteWorkerError, r"EAGLEWorkerV2\.device\b"
            ),
        ):
            invariants.check(worker)

    def test_construction_enters_its_stages(self):
        """A prefill of the worker is a stage too; the draft's extend is the next."""
        entered = []
        worker = SimpleNamespace(target_worker=None)
        with patch.object(eagle_worker_v2, "cycle", create=True) as cycle:
            cycle.enter.side_effect = entered.append
            with self.assertRaises(AttributeError):
                eagle_worker_v2.EAGLEWorkerV2._forward_prefill_batch(
                    worker, SimpleNamespace()
                )
        self.assertEqual(entered, ["prefill"])

    def test_outside_of_a_launch_a_stage_costs_nothing(self):
        construction.enter("draft_model")
        self.assertIsNone(construction.here())


if __name__ == "__main__":
    unittest.main()
