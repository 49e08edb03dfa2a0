"""Unit tests for token ids outside of the vocabulary: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers import tokenizer_manager
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.spec_hardening import token_ids

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

SIZE = 100


class TestTokenIdsInVocabulary(CustomTestCase):
    def _let_through(self, *_):
        self.fail("the id was let through")

    def test_a_request_is_refused_before_it_reaches_a_rank(self):
        manager = SimpleNamespace(
            model_config=SimpleNamespace(vocab_size=SIZE),
            _validate_joint_schema_request=self._let_through,
        )
        features = SimpleNamespace(enable_encoder_swa_bounded_replay=False)
        with (
            patch.object(
                tokenizer_manager,
                "get_exec",
                return_value=SimpleNamespace(features=features),
            ),
            self.assertRaisesRegex(ValueError, f"input_ids: token id {SIZE} "),
        ):
            tokenizer_manager.TokenizerManager._validate_one_request(
                manager, GenerateReqInput(input_ids=[1, SIZE]), [1, SIZE]
            )

    def test_stop_tokens_of_min_new_tokens_are_looked_up_too(self):
        sampling = {"min_new_tokens": 2, "stop_token_ids": [-1]}
        request = GenerateReqInput(input_ids=[1], sampling_params=sampling)
        with self.assertRaisesRegex(ValueError, "stop_token_ids: token id -1 "):
            token_ids.check(request, SIZE)

    def test_ids_inside_pass(self):
        token_ids.check(GenerateReqInput(input_ids=[0, SIZE - 1]), SIZE)


if __name__ == "__main__":
    unittest.main()
