"""Unit tests for the proof that comes before a rank is called ready: no server, no model loading."""

import argparse
import contextlib
import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers import scheduler
from sglang.srt.server_args import ServerArgs
from sglang.srt.spec_hardening import construction, start
from sglang.srt.spec_hardening.self_test.result import Result, SelfTestError, State

register_cpu_ci(est_time=16, suite="base-a-test-cpu")


def _run_rank(proof) -> list:
    """What a rank sends to its parent before it serves; `proof` is what the test gives or raises."""
    writer = MagicMock()
    stub = MagicMock(gracefully_exit=False, draft_worker=None)
    stub.get_init_info.return_value = {"status": "ready"}
    stub.metrics_reporter.enable_metrics = False
    stub.tp_group.world_size = 1
    stub.server_args.nnodes = 1
    names = (
        "load_plugins",
        "publish",
        "spawn_world_rank",
        "configure_scheduler_process",
    )
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(scheduler, name))
        observability = SimpleNamespace(enable_trace=False)
        for module, name, options in (
            (scheduler, "get_observability", {"return_value": observability}),
            (scheduler, "Scheduler", {"return_value": stub}),
            (start, "prove_decoding", {"side_effect": proof}),
            (construction, "signal_parent", {}),
        ):
            stack.enter_context(patch.object(module, name, **options))
        stack.enter_context(contextlib.suppress(SystemExit))
        scheduler.run_scheduler_process(
            SimpleNamespace(), SimpleNamespace(), 0, 0, 0, None, writer
        )
    return [call.args[0] for call in writer.send.call_args_list]


class TestSelfTestBeforeReady(CustomTestCase):
    def test_the_ready_message_carries_the_proof(self):
        proven = Result(State.PROVEN, seconds=1.0, accept_length=2.5, cycles=12)
        (message,) = _run_rank([proven])
        self.assertEqual(message["status"], "ready")
        self.assertEqual(message["speculative_self_test"]["state"], "proven")
        self.assertEqual(message["speculative_self_test"]["accept_length"], 2.5)

    def test_a_rank_that_cannot_decode_is_never_ready(self):
        self.assertEqual(_run_rank(SelfTestError("verify raised")), [])

    def test_without_speculation_the_message_is_as_before(self):
        self.assertEqual(_run_rank([None]), [{"status": "ready"}])

    def test_flags(self):
        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        given = ["--model-path", "x", "--speculative-min-accept-length", "1.5"]
        found = parser.parse_args([*given, "--skip-speculative-self-test"])
        self.assertEqual(found.speculative_min_accept_length, 1.5)
        self.assertTrue(found.skip_speculative_self_test)


if __name__ == "__main__":
    unittest.main()
