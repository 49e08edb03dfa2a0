"""Unit tests for the length of the log of configuration overrides: no server, no model loading."""

import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.runtime_context import get_context

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


class TestOverrideLog(CustomTestCase):
    def _logged(self, *calls: tuple) -> list:
        """What a row of overrides adds to the log."""
        context = get_context()
        with context.override_server_args():
            before = len(context.overrides_log())
            for source, fields in calls:
                context.override(source, **fields)
            self.in_force = context.resolved_server_args_dict()
            return context.overrides_log()[before:]

    def test_switching_to_and_fro_does_not_fill_the_memory(self):
        switches = [
            ("adaptive", {"speculative_num_steps": n % 2, "speculative_eagle_topk": 1})
            for n in range(1, 501)
        ]
        self.assertEqual(self._logged(*switches), switches[-1:])
        self.assertEqual(self.in_force["speculative_num_steps"], 0)

    def test_another_source_or_other_fields_are_kept(self):
        calls = [
            ("one", {"speculative_num_steps": 1, "speculative_eagle_topk": 1}),
            ("one", {"speculative_num_steps": 2}),
            ("two", {"speculative_num_steps": 3}),
            ("one", {"speculative_num_steps": 4}),
        ]
        self.assertEqual(self._logged(*calls), calls)
        self.assertEqual(self.in_force["speculative_num_steps"], 4)
        self.assertEqual(self.in_force["speculative_eagle_topk"], 1)


if __name__ == "__main__":
    unittest.main()
