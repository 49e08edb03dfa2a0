"""Unit tests for how often adaptive speculation changes its steps: no server, no model loading."""

import collections
import json
import os
import tempfile
import unittest
from typing import Callable, Iterable, List, Optional

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams

register_cpu_ci(est_time=14, suite="base-a-test-cpu")


def _steps_of(
    sizes: Iterable[int],
    accepted: Callable[[int, int], int],
    lag: int = 1,
    config: Optional[str] = None,
) -> List[int]:
    """The steps of each batch; results come back `lag` launches later, 1 as with overlap.

    `accepted(number, steps)` is how many drafts of a batch's requests are right.
    """
    params = AdaptiveSpeculativeParams(3, config)
    waiting = collections.deque()
    used = []
    for number, size in enumerate(sizes):
        used.append(params.get_steps_for_batch(size))
        waiting.append((number, size, used[-1]))
        if len(waiting) > lag:
            before, rows, steps = waiting.popleft()
            params.on_verify_complete([accepted(before, steps)] * rows, rows)
    return used


def _changes(used: List[int]) -> int:
    return sum(one != other for one, other in zip(used, used[1:]))


class TestAdaptiveWithoutThrash(CustomTestCase):
    def test_a_batch_size_at_the_edge_of_a_slot(self):
        for lag in (0, 1):
            used = _steps_of([63, 64] * 500, lambda _, steps: steps, lag)
            self.assertLessEqual(_changes(used), 20)

    def test_drafts_that_fail_are_tried_less_and_less(self):
        used = _steps_of([16] * 2000, lambda _, steps: 0)
        self.assertLessEqual(_changes(used), 30)
        self.assertLessEqual(sum(steps > 0 for steps in used), 200)

    def test_drafts_that_are_good_again_are_found(self):
        used = _steps_of([16] * 4000, lambda n, steps: steps if n >= 2000 else 0)
        self.assertLessEqual(max(used[1500:2000]), 1)
        self.assertEqual(used[-1], 3)

    def test_a_result_from_before_a_change_is_no_evidence(self):
        rules = {"candidate_steps": [0, 3]}
        at_once = {"ema_alpha": 1.0, "update_interval": 1, "warmup_batches": 0}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "adaptive.json")
            with open(path, "w") as file:
                json.dump({"1": rules, **at_once}, file)
            used = _steps_of(
                [16] * 200, lambda n, steps: steps if n >= 20 else 0, config=path
            )
        self.assertIn(0, used[:20])
        self.assertEqual(used[100:], [3] * 100)


if __name__ == "__main__":
    unittest.main()
