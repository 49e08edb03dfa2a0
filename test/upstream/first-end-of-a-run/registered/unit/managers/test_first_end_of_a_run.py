"""Unit tests for several ends in one accepted run: no server, no model loading."""

import unittest
from array import array

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

_EOS, _RUN = 2, [5, 6, 7, 8]


class _Words:
    """As much of a tokenizer as a request asks for: token 5 is "w5"."""

    eos_token_id = _EOS
    additional_stop_token_ids = ()

    def decode(self, ids, **_):
        return " ".join(f"w{token}" for token in ids)

    def encode(self, text, **_):
        return text.split()


def _ended(steps: list, **asked) -> tuple:
    """What a request has put out, and why it ended, after these steps of accepted tokens."""
    sampling = SamplingParams(**{"max_new_tokens": 32, **asked})
    sampling.normalize(_Words())
    req = Req(
        "one", "", array("q", [1, 3]), sampling, vocab_size=320, eos_token_ids={_EOS}
    )
    req.tokenizer = _Words()
    req.output_ids.append(4)
    for tokens in steps:
        req.output_ids.extend(tokens)
        req.update_finish_state(len(tokens))
        if req.finished():
            break
    reason = req.finished_reason.to_json() if req.finished_reason else None
    return list(req.output_ids_through_stop), reason


class TestFirstEndOfARun(CustomTestCase):
    def _as_one_by_one(self, run: list, **asked):
        self.assertEqual(
            _ended([run], **asked), _ended([[token] for token in run], **asked), asked
        )

    def test_of_two_strings_the_one_that_comes_first(self):
        for stop in (["w8", "w6"], ["w6", "w8"], ["w7 w8", "w6"], ["w8", "w7 w8"]):
            self._as_one_by_one(_RUN, stop=stop)

    def test_a_stop_token_before_a_string(self):
        for token in _RUN:
            self._as_one_by_one(_RUN, stop=["w8"], stop_token_ids=[token])
        self._as_one_by_one([5, _EOS, 6, 8], stop=["w8"])

    def test_an_expression_and_a_string(self):
        for word in ("w6", "w7", "w8"):
            self._as_one_by_one(_RUN, stop_regex="w[78]", stop=[word])

    def test_the_most_tokens_before_a_string(self):
        for most in (2, 3, 4, 5):
            self._as_one_by_one(_RUN, stop=["w8", "w7"], max_new_tokens=most)

    def test_a_request_that_goes_on(self):
        self._as_one_by_one(_RUN, stop=["absent"])


if __name__ == "__main__":
    unittest.main()
