"""Answers that end, and grammars, at each place of an accepted run, on one GPU.

A plain server is the judge, tokens, text, ends and logprobs: the tiny pair's logits are exact in
bfloat16 too, whatever the order of sums. Seeds are in `test_fidelity_drawn.py`. Seven servers, a
few of them at a time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit import ending_checks
from kit.asking import ask
from kit.fidelity_gpu import (
    CHAIN,
    FLASHINFER,
    REASONING,
    RETRACTED,
    SOME_REJECTED,
    TREE,
    WITHOUT_OVERLAP,
)
from kit.fidelity_servers import asks_of, both
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan

SETUPS = (CHAIN, SOME_REJECTED, TREE, WITHOUT_OVERLAP, RETRACTED, FLASHINFER)


@pytest.fixture(params=SETUPS, ids=lambda setup: setup.name, scope="module")
def spec(request: pytest.FixtureRequest, servers: ServerPool, pairs: dict[Plan, Pair]) -> Client:
    return servers.client(request.param.launch(*REASONING, pairs=pairs))


def test_answers_end_inside_an_accepted_run(plain: Client, spec: Client) -> None:
    ending_checks.check_answers_end_inside_a_run(plain, spec)


def test_the_first_of_several_ends_in_a_run_counts(plain: Client, spec: Client) -> None:
    ending_checks.check_first_of_several_ends_counts(plain, spec)


@pytest.mark.parametrize("field", ["regex", "ebnf"])
def test_grammars_end_inside_an_accepted_run(plain: Client, spec: Client, field: str) -> None:
    ending_checks.check_grammars_end_inside_a_run(plain, spec, field)


def test_a_grammar_begins_where_the_reasoning_ends(plain: Client, spec: Client) -> None:
    ending_checks.check_grammar_begins_where_the_reasoning_ends(plain, spec)


def test_reasoning_is_counted_up_to_the_end_of_the_answer(plain: Client, spec: Client) -> None:
    ending_checks.check_reasoning_is_counted_up_to_the_end(plain, spec)


def test_a_chat_answer_is_reasoned_and_keeps_to_its_format(plain: Client, spec: Client) -> None:
    ending_checks.check_chat_answer_is_reasoned_and_keeps_to_its_format(plain, spec)


def test_choices_streams_and_logprobs(plain: Client, spec: Client) -> None:
    """A plain step and a verify of many rows, where the logprobs of each stand apart."""
    asks = asks_of(
        {},
        {"n": 3, "max_new_tokens": 9},
        {"frequency_penalty": 1.0, "logit_bias": {"70": 28.0, "71": 27.5}},
        {"max_new_tokens": 30, "stop": ["t9 "], "n": 2},
        logprobs=True,
    )
    asks = [
        replace(one, stream=stream, token_ids=(64, 65)) for one in asks for stream in (False, True)
    ]
    replies = both(plain, spec, asks * 6)
    assert sum(sum(reply.accepted[1:]) for reply in replies) > 0
    alone = ask(spec, asks[:1])
    assert alone[0].tokens == replies[0].tokens
