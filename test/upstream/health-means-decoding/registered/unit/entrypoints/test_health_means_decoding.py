"""Unit tests for health of a server with speculation: no server, no model loading."""

import asyncio
import multiprocessing
import time
import unittest
from types import SimpleNamespace
from unittest.mock import AsyncMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.entrypoints import http_server
from sglang.srt.managers.tokenizer_manager import ServerStatus
from sglang.srt.spec_hardening import death, health, record

register_cpu_ci(est_time=20, suite="base-a-test-cpu")


def _run_rank(verify_out: bool) -> None:
    """A rank that serves, or whose verify was launched a minute ago and has not come back."""
    rank = record.from_environment().claim("rank TP0")
    rank.last_decode = time.monotonic()
    rank.pending_since = time.monotonic() - 60 if verify_out else 0.0
    rank.status = record.Status.READY
    time.sleep(600)


class TestHealthMeansDecoding(CustomTestCase):
    def setUp(self):
        self.manager = SimpleNamespace(
            server_status=ServerStatus.Up,
            gracefully_exit=False,
            is_generation=True,
            is_ready=lambda: True,
            last_receive_tstamp=0.0,
            rid_to_state={},
        )
        death.launch()
        self.addCleanup(setattr, death, "_board", None)
        for change in (
            patch.object(
                http_server,
                "_global_state",
                SimpleNamespace(tokenizer_manager=self.manager),
            ),
            patch.object(health, "watched", return_value=True),
            patch.object(health, "bound", return_value=20.0),
            # A probe that has to ask a rank would wait for this long.
            patch.object(http_server, "HEALTH_CHECK_TIMEOUT", 1),
            patch.object(
                http_server,
                "get_disagg",
                return_value=SimpleNamespace(disaggregation_mode="null"),
            ),
        ):
            change.start()
            self.addCleanup(change.stop)

    def _start_rank(self, verify_out: bool = False):
        process = multiprocessing.get_context("fork").Process(
            target=_run_rank, args=(verify_out,)
        )
        process.start()
        self.addCleanup(process.join)
        self.addCleanup(process.kill)
        board = death.board()
        deadline = time.monotonic() + 30
        while not any(rank.status == record.Status.READY for rank in board.ranks()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def _health(self):
        request = SimpleNamespace(url=SimpleNamespace(path="/health"))
        self.manager.generate_request = AsyncMock()
        return asyncio.run(http_server.health_generate(request))

    def _ready(self):
        return asyncio.run(http_server.ready())

    def test_a_recent_decode_is_health_without_a_request(self):
        self._start_rank()
        self.assertEqual(self._health().status_code, 200)
        self.manager.generate_request.assert_not_called()
        self.assertEqual(self._ready().status_code, 200)

    def test_a_verify_that_does_not_return_is_told(self):
        self._start_rank(verify_out=True)
        answer = self._health()
        self.assertEqual(answer.status_code, 503)
        self.assertIn(b"no verify has returned for 6", answer.body)
        self.assertEqual(self._ready().status_code, 503)

    def test_a_rank_that_is_gone_is_told(self):
        process = self._start_rank()
        process.kill()
        process.join()
        answer = self._health()
        self.assertEqual(answer.status_code, 503)
        self.assertIn(f"(pid {process.pid}) is gone".encode(), answer.body)
        self.assertEqual(self._ready().status_code, 503)


if __name__ == "__main__":
    unittest.main()
