"""Unit tests for keys among the arguments that a server shows: no server, no model loading."""

import unittest

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt import server_args
from sglang.srt.server_args import ServerArgs

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

SECRET = "kept-to-ourselves"
FIELDS = ("api_key", "admin_api_key", "ssl_keyfile_password")


class TestSecretsNotShown(CustomTestCase):
    def test_resolved_arguments_have_no_secret(self):
        for field in FIELDS:
            with self.subTest(field=field):
                arguments = ServerArgs(model_path="dummy", **{field: SECRET})
                shown = arguments.resolved_dict()
                self.assertEqual(getattr(arguments, field), SECRET)
                self.assertEqual(shown[field], "<redacted>")
                self.assertNotIn(SECRET, str(shown))

    def test_what_was_not_given_is_none(self):
        shown = ServerArgs(model_path="dummy").resolved_dict()
        self.assertEqual([shown[field] for field in FIELDS], [None] * len(FIELDS))

    def test_the_launch_command_has_no_secret(self):
        for words in (
            ["--api-key", SECRET],
            [f"--api-key={SECRET}"],
            ["--api-k", SECRET],
        ):
            with self.subTest(words=words):
                arguments = server_args.prepare_server_args(
                    ["--model-path", "dummy", *words]
                )
                self.assertEqual(arguments.api_key, SECRET)
                self.assertNotIn(SECRET, arguments.launch_command)
                self.assertIn("<redacted>", arguments.launch_command)


if __name__ == "__main__":
    unittest.main()
