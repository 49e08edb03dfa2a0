"""A request that is aborted while a verify is out: what it is given ends where its answer does."""

from __future__ import annotations

from array import array

import pytest

pytest.importorskip("torch")
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req
from sglang.srt.sampling.sampling_params import SamplingParams

STOP = 77


def aborted(tokens: list[int], accepted: int) -> Req:
    """Eight new tokens at most; `accepted` of `tokens` came with the verify."""
    sampling = SamplingParams(max_new_tokens=8, stop_token_ids=[STOP])
    sampling.normalize(None)
    request = Req("one", "", array("q", [1, 2, 3]), sampling, vocab_size=320)
    request.output_ids.extend(tokens)
    request.to_finish = FINISH_ABORT("client gone")
    request.update_finish_state(accepted)
    assert isinstance(request.finished_reason, FINISH_ABORT) and request.to_finish is None
    return request


def test_no_token_past_the_most_that_was_asked_for() -> None:
    assert list(aborted([9] * 11, 4).output_ids_through_stop) == [9] * 8


def test_no_token_past_a_stop() -> None:
    assert list(aborted([9, 9, STOP, 9, 9], 4).output_ids_through_stop) == [9, 9, STOP]


def test_all_that_came_before_its_end() -> None:
    assert list(aborted([9] * 6, 4).output_ids_through_stop) == [9] * 6
    assert list(aborted([9] * 6, 1).output_ids_through_stop) == [9] * 6
    assert list(aborted([9] * 6, 0).output_ids_through_stop) == [9] * 6
