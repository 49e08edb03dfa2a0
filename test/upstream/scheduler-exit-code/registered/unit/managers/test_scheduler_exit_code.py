"""Unit tests for how a scheduler process ends: no server, no model loading."""

import contextlib
import multiprocessing
import os
import signal
import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.entrypoints import engine
from sglang.srt.managers import scheduler
from sglang.srt.spec_hardening import construction, death

register_cpu_ci(est_time=16, suite="base-a-test-cpu")

_FORK = multiprocessing.get_context("fork")


def _run_rank(failure: BaseException, writer) -> None:
    """The process of a rank whose scheduler ends with `failure` while it is built."""
    names = (
        "load_plugins",
        "publish",
        "spawn_world_rank",
        "configure_scheduler_process",
    )
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(scheduler, name))
        stack.enter_context(
            patch.object(
                scheduler,
                "get_observability",
                return_value=SimpleNamespace(enable_trace=False),
            )
        )
        stack.enter_context(patch.object(scheduler, "Scheduler", side_effect=failure))
        scheduler.run_scheduler_process(
            SimpleNamespace(), SimpleNamespace(), 0, 0, 0, None, writer
        )


def _run_killed_rank(writer) -> None:
    """A rank that is killed while it loads the draft: it can say nothing."""
    construction.begin(0)
    construction.enter("draft_model")
    os.kill(os.getpid(), signal.SIGKILL)


class TestSchedulerExitCode(CustomTestCase):
    def setUp(self):
        self.signals = []
        before = signal.signal(
            signal.SIGQUIT, lambda number, frame: self.signals.append(number)
        )
        self.addCleanup(signal.signal, signal.SIGQUIT, before)
        self.addCleanup(setattr, death, "_board", None)

    def _start(self, target, *arguments):
        reader, writer = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=target, args=(*arguments, writer))
        process.start()
        writer.close()
        return process, reader

    def _exit_code(self, failure: BaseException) -> int:
        process, _ = self._start(_run_rank, failure)
        process.join(60)
        return process.exitcode

    def test_an_exception_gives_an_exit_code_and_a_signal(self):
        self.assertEqual(self._exit_code(RuntimeError("no memory left")), 1)
        self.assertEqual(self.signals, [signal.SIGQUIT])

    def test_system_exit_is_no_success(self):
        self.assertEqual(self._exit_code(SystemExit(0)), 1)

    def test_the_launch_names_rank_and_stage_of_a_killed_rank(self):
        death.launch()
        process, reader = self._start(_run_killed_rank)
        with self.assertRaisesRegex(
            RuntimeError, "rank TP0 .*stage draft_model: .*SIGKILL"
        ):
            engine._wait_for_scheduler_ready([reader], [process])


if __name__ == "__main__":
    unittest.main()
