"""Unit tests for a request aborted while a verify is out: no server, no model loading."""

import unittest
from array import array

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

_STOP = 77


class TestAbortInVerify(CustomTestCase):
    def _given(self, output: list, accepted: int) -> list:
        """What a request gets that asked for eight tokens at most and was aborted.

        Args:
            output: all tokens it has, those of the last step included.
            accepted: how many came with the last step.
        """
        sampling = SamplingParams(max_new_tokens=8, stop_token_ids=[_STOP])
        sampling.normalize(None)
        req = Req("one", "", array("q", [1, 2, 3]), sampling, vocab_size=320)
        req.output_ids.extend(output)
        req.to_finish = FINISH_ABORT("client gone")
        req.update_finish_state(accepted)
        self.assertIsInstance(req.finished_reason, FINISH_ABORT)
        self.assertIsNone(req.to_finish)
        return list(req.output_ids_through_stop)

    def test_no_token_past_the_most_that_was_asked_for(self):
        self.assertEqual(self._given([9] * 11, 4), [9] * 8)

    def test_no_token_past_a_stop(self):
        self.assertEqual(self._given([9, 9, _STOP, 9, 9], 4), [9, 9, _STOP])

    def test_all_tokens_before_its_end(self):
        for accepted in (4, 1, 0):
            self.assertEqual(self._given([9] * 6, accepted), [9] * 6)


if __name__ == "__main__":
    unittest.main()
