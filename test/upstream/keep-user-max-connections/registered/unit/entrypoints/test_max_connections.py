"""Unit tests for the number of hardware queues of a launch: no server, no model loading."""

import os
import unittest
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.entrypoints import engine
from sglang.srt.server_args import ServerArgs

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_NAME = "CUDA_DEVICE_MAX_CONNECTIONS"


class TestMaxConnections(CustomTestCase):
    def _launched_with(self, environment: dict) -> str:
        with (
            patch.dict(os.environ, environment),
            patch.object(engine, "set_ulimit"),
            patch.object(engine, "attention_backends_of", return_value=[]),
        ):
            engine._set_envs_and_config(ServerArgs(model_path="dummy", device="cpu"))
            return os.environ[_NAME]

    def test_what_the_user_set_stays(self):
        for value in ("1", "32"):
            self.assertEqual(self._launched_with({_NAME: value}), value)

    def test_it_is_eight_where_nobody_did(self):
        before = os.environ.pop(_NAME, None)
        try:
            self.assertEqual(self._launched_with({}), "8")
        finally:
            os.environ.pop(_NAME, None)
            if before is not None:
                os.environ[_NAME] = before


if __name__ == "__main__":
    unittest.main()
