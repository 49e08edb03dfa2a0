"""Unit tests for the count of reasoning tokens of an accepted run: no server, no model loading."""

import unittest
from array import array
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler_components import batch_result_processor
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

_RUN = [5, 6, 7, 8]


def _counted(**asked) -> tuple:
    """What of a run is counted as reasoning, and what the request is given of it."""
    sampling = SamplingParams(**{"max_new_tokens": 32, **asked})
    sampling.normalize(None)
    req = Req("one", "", array("q", [1, 3]), sampling, vocab_size=320)
    counted = []
    processor = MagicMock(enable_overlap=False, enable_overlap_mlx=False)
    processor._normalize_decode_outputs.return_value = ([_RUN], None)
    processor._maybe_update_reasoning_tokens = lambda req, run: counted.extend(run)
    batch = MagicMock(reqs=[req])
    batch.batch_size.return_value = 1
    cls = batch_result_processor.SchedulerBatchResultProcessor
    with patch.object(batch_result_processor, "get_observability"):
        cls.process_batch_result_decode(processor, batch, MagicMock())
    return counted, list(req.output_ids_through_stop)


class TestReasoningWithinTheAnswer(CustomTestCase):
    def test_a_run_that_is_cut_at_the_most_tokens(self):
        self.assertEqual(_counted(max_new_tokens=2), (_RUN[:2], _RUN[:2]))

    def test_a_run_with_a_stop_token_in_it(self):
        self.assertEqual(_counted(stop_token_ids=[7]), (_RUN[:3], _RUN[:3]))

    def test_a_run_that_is_all_of_the_answer(self):
        self.assertEqual(_counted(), (_RUN, _RUN))


if __name__ == "__main__":
    unittest.main()
