"""What makes a measurement, and what makes it invalid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sglang_spec.bench import lossless, measure, side
from sglang_spec.bench.cells import Cell
from sglang_spec.bench.side import Facts
from sglang_spec.bench.traffic import Answer, Reply
from sglang_spec.smoke.target import Generated
from sglang_spec.smoke.teacher import Unequal

CELL = Cell(64, 2, None, 4, 32)
GOOD = Answer((5, 6, 7), 64, 10, 15, (2, 2, 5, 1), "")
FACTS = Facts("EAGLE3", 3, 1, 4, False, 4096, 8, {}, {}, {})
FIGURES = {"duration": 2.0, "output_throughput": 64.0, "concurrency": 1.9, "mean_ttft_ms": 10.0}


def reply(*answers: Answer, **figures: float) -> Reply:
    return Reply({**FIGURES, **figures}, answers or (GOOD,) * 4)


def reasons(told: Reply, facts: Facts = FACTS, speculates: bool = True) -> list[str]:
    return measure.reasons(CELL, facts, told, None, speculates)


def test_counters_are_those_of_the_requests_with_the_bonus_token() -> None:
    found = measure.measurement(CELL, FACTS, reply(), None, True)
    assert found["invalid"] == [] and found["output_throughput"] == 64.0
    assert found["accept_length"] == 2.5 and found["cycles_per_s"] == 20.0
    assert found["histogram"] == [8, 8, 20, 4]
    assert found["position_acceptance"] == [0.8, 0.6, 0.1]


def test_an_accept_length_near_one_is_invalid_not_slow() -> None:
    refused = replace(GOOD, cycles=30, correct_drafts=1, histogram=(29, 1, 0, 0))
    (why,) = reasons(reply(*(refused,) * 4))
    assert "accept length 1.03" in why and "a fault" in why
    fair = replace(GOOD, cycles=30, correct_drafts=3, histogram=(27, 3, 0, 0))
    assert reasons(reply(*(fair,) * 4)) == []


def test_no_cycles_are_invalid_unless_the_server_may_pause() -> None:
    off = reply(*(replace(GOOD, cycles=0, correct_drafts=0, histogram=()),) * 4)
    assert reasons(off) == ["no verify cycle was counted"]
    assert reasons(off, replace(FACTS, pauses=True)) == []
    plain = replace(FACTS, algorithm=None)
    assert reasons(off, plain, speculates=False) == []
    assert "speculative_algorithm is not set" in reasons(off, plain)[0]
    assert measure.measurement(CELL, plain, off, None, False)["accept_length"] is None


def test_cycles_that_propose_nothing_are_no_fault_of_a_server_that_may_pause() -> None:
    """Upstream's adaptive mode goes on with verify cycles of one token at 0 steps."""
    pausing = replace(FACTS, pauses=True)
    off = replace(GOOD, cycles=30, correct_drafts=0, histogram=(30,), proposed_drafts=0)
    assert reasons(reply(*(off,) * 4), pausing) == []
    (why,) = reasons(reply(*(off,) * 4))
    assert "accept length 1.00" in why
    sick = replace(off, proposed_drafts=30)
    (why,) = reasons(reply(*(sick,) * 4), pausing)
    assert "accept length 1.00" in why
    silent = replace(off, proposed_drafts=None)
    assert len(reasons(reply(*(silent,) * 4), pausing)) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (replace(GOOD, error="Traceback\nConnectionError: gone"), "1 of 4 requests failed: Conn"),
        (replace(GOOD, prompt_tokens=60), "counts 60 prompt tokens, 64 were sent"),
        (replace(GOOD, tokens=()), "1 of 4 answers are empty"),
    ],
)
def test_a_load_that_was_not_what_was_asked_for_is_invalid(answer: Answer, says: str) -> None:
    assert says in reasons(reply(answer, GOOD, GOOD, GOOD))[0]


def test_requests_that_did_not_run_together_are_invalid() -> None:
    assert "1.0 requests ran at a time" in reasons(reply(concurrency=1.0))[0]


def test_a_server_too_small_for_the_load_is_refused_with_the_flag() -> None:
    assert side.refusals(FACTS, 4000, 8) == []
    few, small = side.refusals(FACTS, 5000, 9)
    assert "--max-running-requests" in few and "--max-total-tokens" in small
    assert side.refusals(replace(FACTS, kv_tokens=None, most_requests=None), 9**9, 999) == []


def unequal(tie: bool) -> lossless.Explain:
    def explain(number: int, prompt: Any, tokens: Any) -> Unequal | None:
        return Unequal(number, len(tokens) - 1, tokens[-1], 9, 0.1 if tie else 3.0, tie)

    return explain


def never(number: int, prompt: Any, tokens: Any) -> None:
    raise AssertionError("nothing was to be explained")


def test_equal_answers_are_equal_and_need_no_prefill() -> None:
    found = lossless.compare([[1]], [GOOD], {0: [5, 6, 7]}, never)
    assert (found.compared, found.equal, found.reason) == (1, 1, None)


def test_a_difference_is_a_tie_only_where_a_prefill_shows_it() -> None:
    other = replace(GOOD, tokens=(5, 8, 7))
    reference = {0: [5, 6, 7]}
    tied = lossless.compare([[1]], [other], reference, unequal(tie=True))
    assert (tied.equal, tied.ties, tied.reason) == (0, 1, None)
    wrong = lossless.compare([[1]], [other], reference, unequal(tie=False))
    assert wrong.reason and "request 0, position 1: token 8 instead of 9" in wrong.reason
    why = measure.reasons(CELL, FACTS, reply(), wrong, True)
    assert why == [wrong.reason]


@pytest.mark.parametrize(("margin", "tie"), [(lossless.TIE_MARGIN, False), (0.5, True)])
def test_what_counts_as_a_tie_can_be_said(
    margin: float, tie: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prefill has 9 before the token 8 that was answered by 0.4, its grid being 1/16."""
    row = [[-1.0, 9, None], [-1.4, 8, None], [-1.4625, 7, None]]
    meta = {"input_top_logprobs": [row]}
    reply = Generated((1,), "", 0, (), meta)
    monkeypatch.setattr(lossless.Target, "generate", lambda *_, **__: reply)
    found = lossless.by_prefill("http://127.0.0.1:1", margin)(0, [1], [8])
    assert found is not None and (found.got, found.wanted, found.tie) == (8, 9, tie)


def test_an_answer_that_ends_early_is_no_tie() -> None:
    short = replace(GOOD, tokens=(5, 6))
    found = lossless.compare([[1]], [short], {0: [5, 6, 7]}, never)
    assert found.reason and "position 2: token None instead of 7" in found.reason


def test_of_many_differences_some_are_examined_and_the_rest_counted() -> None:
    answers = [replace(GOOD, tokens=(5, 8, 7))] * 9
    found = lossless.compare(
        [[1]] * 9, answers, {n: [5, 6, 7] for n in range(9)}, unequal(tie=True)
    )
    assert (found.ties, found.unexamined) == (lossless.MOST_EXAMINED, 3)


def test_without_a_reference_some_answers_are_held_against_a_prefill() -> None:
    found = lossless.compare([[1]] * 4, [GOOD] * 4, {}, unequal(tie=False))
    assert found.compared == lossless.SPOT_CHECKS and len(found.wrong) == 3
    fine = lossless.compare([[1]] * 4, [GOOD] * 4, {}, lambda *asked: None)
    assert (fine.equal, fine.reason) == (3, None)


def test_what_a_server_says_of_itself() -> None:
    plain = Facts.of({"max_total_num_tokens": 100, "speculative_num_steps": 3})
    assert (plain.algorithm, plain.num_steps, plain.pauses, plain.kv_tokens) == (
        None, None, False, 100,
    )  # fmt: skip
    found = Facts.of(
        {
            "speculative_algorithm": "EAGLE3",
            "speculative_num_steps": 3,
            "speculative_num_draft_tokens": 4,
            "internal_states": [
                {"memory_usage": {"token_capacity": 7}, "batch_threshold": {"on": True}}
            ],
            "spec_hardening": {"provenance": {"patch_set": "abc"}},
        }
    )
    assert (found.num_steps, found.num_draft_tokens, found.kv_tokens) == (3, 4, 7)
    assert found.pauses and found.provenance["patch_set"] == "abc"
