"""Unit tests for the caller of an Engine whose rank dies: no server, no model loading."""

import asyncio
import multiprocessing
import os
import signal
import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.spec_hardening import construction, death, record
from sglang.srt.utils.watchdog import SubprocessWatchdog

register_cpu_ci(est_time=15, suite="base-a-test-cpu")


def _run_rank(asked: bool) -> None:
    """A rank that leaves with exit code 0, because it was asked to or because it gave up."""
    construction.begin(0)
    construction.ready()
    if asked:
        construction.here().status = record.Status.CLOSED
    os._exit(0)


class TestEngineDeadRank(CustomTestCase):
    def setUp(self):
        self.signals = []
        before = signal.signal(
            signal.SIGQUIT, lambda number, frame: self.signals.append(number)
        )
        self.addCleanup(signal.signal, signal.SIGQUIT, before)
        self.addCleanup(setattr, death, "_board", None)

    def _after_the_end_of_a_rank(self, asked: bool):
        """Whether the watchdog sees a dead rank, and the manager of the Engine it serves."""
        death.launch(True)
        process = multiprocessing.get_context("fork").Process(
            target=_run_rank, args=(asked,)
        )
        process.start()
        process.join(60)
        watchdog = SubprocessWatchdog([process], ["scheduler_0"])
        manager = SimpleNamespace(
            engine_dead=None,
            engine_dead_event=asyncio.Event(),
            event_loop=None,
            rid_to_state={},
            _subprocess_watchdog=watchdog,
        )
        watchdog.engine_manager = manager
        return watchdog._check_processes(), manager

    def _ask(self, manager) -> None:
        requests = TokenizerManager.generate_request(manager, SimpleNamespace())
        asyncio.run(requests.__anext__())

    def test_a_rank_that_gave_up_is_an_exception_of_the_caller(self):
        seen, manager = self._after_the_end_of_a_rank(asked=False)
        self.assertTrue(seen, "exit code 0 was taken for health")
        with self.assertRaisesRegex(death.EngineDeadError, "rank TP0"):
            self._ask(manager)
        self.assertEqual(self.signals, [], "the caller's own process was signalled")

    def test_a_rank_that_was_asked_to_leave_is_no_failure(self):
        seen, manager = self._after_the_end_of_a_rank(asked=True)
        self.assertFalse(seen)
        self.assertIsNone(manager.engine_dead)


if __name__ == "__main__":
    unittest.main()
