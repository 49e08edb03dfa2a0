"""An accepted run with several ends in it: the request ends at the first, as token by token."""

from __future__ import annotations

from array import array
from functools import partial
from itertools import permutations
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("torch")
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler_components import batch_result_processor
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.sampling.sampling_params import SamplingParams

RUN = [5, 6, 7, 8]


class Words:
    """As much of a tokenizer as a request asks for."""

    eos_token_id = 2
    additional_stop_token_ids: tuple[int, ...] = ()

    def decode(self, ids: Any) -> str:
        return " ".join(f"w{token}" for token in ids)

    def encode(self, text: str, **_: Any) -> list[str]:
        return text.split()


def request(**sampling: Any) -> Req:
    asked = SamplingParams(**{"max_new_tokens": 32, **sampling})
    asked.normalize(Words())
    made = Req("one", "", array("q", [1, 3]), asked, vocab_size=320, eos_token_ids={2})
    made.tokenizer = Words()
    made.output_ids.append(4)
    return made


def ended(run: list[int], **sampling: Any) -> tuple[list[int], Any]:
    """What a request has put out and why it ended, after a verify that accepted `run`."""
    made = request(**sampling)
    made.output_ids.extend(run)
    made.update_finish_state(len(run))
    reason = made.finished_reason.to_json() if made.finished_reason else None
    return list(made.output_ids_through_stop), reason


def one_by_one(run: list[int], **sampling: Any) -> tuple[list[int], Any]:
    """The same from plain decoding."""
    made = request(**sampling)
    for token in run:
        made.output_ids.append(token)
        made.update_finish_state()
        if made.finished():
            break
    reason = made.finished_reason.to_json() if made.finished_reason else None
    return list(made.output_ids_through_stop), reason


ENDS: list[dict[str, Any]] = [
    *({"stop": list(two)} for two in permutations(("w6", "w7 w8", "w8"), 2)),
    *({"stop": ["w8", "w7"], "stop_token_ids": [token]} for token in RUN),
    *({"stop_regex": "w[78]", "stop": [word]} for word in ("w6", "w7", "w8")),
    *({"stop_regex": ["w8", "w[67] w"], "stop_token_ids": [token]} for token in RUN),
    *({"stop": ["w8", "w7"], "max_new_tokens": most} for most in (2, 3, 4, 5)),
    {"stop": ["w8", "w6"], "stop_token_ids": [5], "ignore_eos": True},
    {"stop": ["absent"], "stop_token_ids": [7]},
    {"stop": ["absent"]},
]


@pytest.mark.parametrize("number", range(len(ENDS)))
def test_the_first_end_of_a_run_is_the_end(number: int) -> None:
    for run in (RUN, RUN[:2], [5, 2, 6, 8]):
        assert ended(run, **ENDS[number]) == one_by_one(run, **ENDS[number])


def decoded(
    monkeypatch: pytest.MonkeyPatch, made: Req, run: list[int], algorithm: Any
) -> list[int]:
    """What of `run` is counted as reasoning, after a step of a request that put it out."""
    monkeypatch.setattr(batch_result_processor, "get_observability", MagicMock())
    counted: list[int] = []
    processor = MagicMock(enable_overlap=False, enable_overlap_mlx=False)
    processor._normalize_decode_outputs.return_value = ([run], None)
    processor._maybe_update_reasoning_tokens = lambda _, within: counted.extend(within)
    processor._accept_grammar_tokens = partial(
        SchedulerBatchResultProcessor._accept_grammar_tokens, processor
    )
    batch = MagicMock(reqs=[made], spec_algorithm=algorithm)
    batch.batch_size.return_value = 1
    processor.beam_coordinator.commit_decode.return_value = set()
    SchedulerBatchResultProcessor.process_batch_result_decode(processor, batch, MagicMock())
    return counted


@pytest.mark.parametrize("end", [{"max_new_tokens": 3}, {"stop_token_ids": [6]}, {"stop": ["w6"]}])
def test_no_token_past_the_end_is_counted_as_reasoning(
    monkeypatch: pytest.MonkeyPatch, end: dict[str, Any]
) -> None:
    made = request(**end)
    counted = decoded(monkeypatch, made, RUN, MagicMock(is_none=lambda: False))
    assert counted == RUN[:2] and list(made.output_ids_through_stop) == [4, *RUN[:2]]


class Grammar:
    """It ends with EOS, forbids 9, and knows no token that comes after its end."""

    finished = False

    def __init__(self) -> None:
        self.seen: list[int] = []

    def accept_token(self, token: int) -> None:
        if token == 9 or self.is_terminated():
            raise ValueError(token)
        self.seen.append(token)

    def is_terminated(self) -> bool:
        return 2 in self.seen


def ruled(
    monkeypatch: pytest.MonkeyPatch, run: list[int], at_once: bool, sampling: dict[str, Any]
) -> tuple[list[int], Any]:
    """What a request with a grammar has put out and why it ended, after `run` came."""
    made = request(**sampling)
    made.grammar = Grammar()
    algorithm = MagicMock(is_none=lambda: not at_once)
    if at_once:
        kept = SchedulerBatchResultProcessor._accept_grammar_tokens(MagicMock(), made, run)
        decoded(monkeypatch, made, kept, algorithm)
    for token in () if at_once else run:
        if not made.finished():
            decoded(monkeypatch, made, [token], algorithm)
    assert made.grammar.finished == made.finished()
    reason = made.finished_reason.to_json() if made.finished_reason else None
    return list(made.output_ids_through_stop), reason


RULED: list[dict[str, Any]] = [
    {},
    {"ignore_eos": True},
    *({"stop": [word]} for word in ("w6", "w6 w7", "w9")),
    *({"stop_token_ids": [token]} for token in (5, 7, 9)),
    *({"max_new_tokens": most} for most in (2, 3, 4, 5)),
]


@pytest.mark.parametrize("run", [[5, 6, 2], [5, 9, 6], [5, 6, 7, 9], [9, 6], [5, 2], [5, 6, 7]])
def test_a_grammar_ends_a_run_as_it_ends_plain_decoding(
    monkeypatch: pytest.MonkeyPatch, run: list[int]
) -> None:
    for sampling in RULED:
        right = ruled(monkeypatch, run, False, sampling)
        assert ruled(monkeypatch, run, True, sampling) == right, sampling


def test_a_grammar_ends_plain_decoding_with_the_very_token(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = ruled(monkeypatch, [5, 2, 6], False, {"ignore_eos": True})
    assert ended == ([4, 5, 2], {"type": "stop", "matched": 2})
    tokens, reason = ruled(monkeypatch, [5, 9, 6], False, {})
    assert tokens == [4, 5, 9] and reason["message"] == "Grammar accept_token failed: 9"
    tokens, reason = ruled(monkeypatch, [5, 9, 6], False, {"stop": ["w9"]})
    assert tokens == [4, 5, 9] and reason == {"type": "stop", "matched": "w9"}
