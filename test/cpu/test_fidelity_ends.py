"""Answers that end, and grammars that begin and end, at each place of an accepted run.

Every server has a reasoning parser: a grammar waits for the end of the reasoning, if there is one.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from kit import ending_checks, thinking
from kit.asking import Ask
from kit.fidelity_servers import ORACLE, both, launch
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan


def test_answers_end_inside_an_accepted_run(plain: Client, spec: Client) -> None:
    ending_checks.check_answers_end_inside_a_run(plain, spec)


def test_the_first_of_several_ends_in_a_run_counts(plain: Client, spec: Client) -> None:
    ending_checks.check_first_of_several_ends_counts(plain, spec)


@pytest.mark.parametrize("field", ["regex", "ebnf"])
def test_grammars_end_inside_an_accepted_run(plain: Client, spec: Client, field: str) -> None:
    ending_checks.check_grammars_end_inside_a_run(plain, spec, field)


def test_a_grammar_begins_where_the_reasoning_ends(plain: Client, spec: Client) -> None:
    ending_checks.check_grammar_begins_where_the_reasoning_ends(plain, spec)


@pytest.mark.full  # three servers of its own
def test_reasoning_ends_with_its_budget(servers: ServerPool, pairs: dict[Plan, Pair]) -> None:
    """`--enable-strict-thinking`: every request is masked, also without a grammar."""
    budgets: list[dict[str, Any]] = [{"thinking_budget": n} for n in range(9)]
    asks = [
        Ask(prompt, {"max_new_tokens": 24, "custom_params": budget, **rule}, reasoning=on)
        for prompt in thinking.prompts().values()
        for budget in [*budgets, None]
        for on, rule in [(True, {}), (False, {}), (True, {"regex": thinking.RULES["regex"][1]})]
    ]
    flags, most = "--enable-strict-thinking", {"SGLANG_MAX_THINK_TOKENS": "5"}
    launches = [replace(launch(pairs, mode, flags), environment=most) for mode in ("chain", "tree")]
    plain = replace(launches[0], speculation=None)
    without = servers.client(plain)
    for one in launches:
        replies = both(without, servers.client(one), asks)
        for ask, reply in zip(asks, replies, strict=True):
            budget = (ask.sampling["custom_params"] or {"thinking_budget": 5})["thinking_budget"]
            place = ORACLE.greedy(ask.prompt, 24).index(thinking.END)
            thought = (*ORACLE.greedy(ask.prompt, 24)[: min(place, budget)], thinking.END)
            if not ask.reasoning:
                assert list(reply.tokens) == ORACLE.greedy(ask.prompt, 24), ask
                continue
            assert reply.tokens[: len(thought)] == thought, ask
            assert reply.reasoning == len(thought), ask
            if "regex" not in ask.sampling:
                rest = ORACLE.greedy((*ask.prompt, *thought), 24 - len(thought))
                assert list(reply.tokens[len(thought) :]) == rest, ask
        assert sum(sum(reply.accepted[1:]) for reply in replies) > 0


def test_sampled_answers_keep_to_their_grammar(plain: Client, spec: Client) -> None:
    ending_checks.check_sampled_answers_keep_to_their_grammar(plain, spec)


def test_reasoning_is_counted_up_to_the_end_of_the_answer(plain: Client, spec: Client) -> None:
    ending_checks.check_reasoning_is_counted_up_to_the_end(plain, spec)


def test_a_chat_answer_is_reasoned_and_keeps_to_its_format(plain: Client, spec: Client) -> None:
    ending_checks.check_chat_answer_is_reasoned_and_keeps_to_its_format(plain, spec)


def test_grammars_of_aborted_requests_leave_nothing_behind(plain: Client, spec: Client) -> None:
    asks = [
        Ask(prompt, {"max_new_tokens": 24, "regex": f"(t[0-9]+){{{3 + place}}}"}, reasoning=True)
        for place, prompt in thinking.prompts().items()
    ]
    long = {"max_new_tokens": 900, "temperature": 0, "ignore_eos": True}
    with ThreadPoolExecutor() as pool:
        aborted = pool.submit(
            spec.post,
            "/generate",
            input_ids=[list(one.prompt) for one in asks for _ in range(2)],
            sampling_params=[
                {**long, "regex": rule}
                for one in asks
                for rule in (one.sampling["regex"], "(t[0-9]+)+")
            ],
            require_reasoning=True,
        )
        while not aborted.done():
            time.sleep(0.1)
            spec.post("/abort_request", rid="", abort_all=True)
    assert "abort" in aborted.result().text.lower()
    both(plain, spec, asks)
