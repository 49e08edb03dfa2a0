"""Answers that end, and grammars that begin and end, at each place of an accepted run.

Every server has a reasoning parser: a grammar waits for the end of the reasoning, if there is one.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from kit import thinking
from kit.asking import Ask
from kit.fidelity_servers import COMING, ORACLE, PROMPT, asks_of, both
from sglang_spec.client import Client


def test_answers_end_inside_an_accepted_run(plain: Client, spec: Client) -> None:
    words = [f"t{token - 64}" for token in COMING]
    cut = [{"max_new_tokens": n} for n in range(1, 10)]
    ids = [{"stop_token_ids": [token], "ignore_eos": False} for token in COMING[:9]]
    strings = [{"stop": [f"{a} {b}"]} for a, b in pairwise(words[:10])]
    kept = [{**one, "no_stop_trim": True} for one in strings]
    regexes = [{"stop_regex": f"{a} t[0-9]+ "} for a in words[:6]]
    asks = asks_of(*cut, *ids, *strings, *kept, *regexes, logprobs=True)
    replies = both(plain, spec, asks)
    assert {len(reply.tokens) for reply in replies} >= set(range(1, 10))


def test_the_first_of_several_ends_in_a_run_counts(plain: Client, spec: Client) -> None:
    pairs = list(pairwise([f"t{token - 64}" for token in COMING[:10]]))
    strings = [f"{a} {b}" for a, b in pairs]
    ends: list[dict[str, Any]] = []
    for early, late in pairwise(range(len(strings))):
        two = {"stop": [strings[late], strings[early]]}
        regex = {"stop_regex": strings[early], "stop": [strings[late]]}
        token = {"stop": [strings[late]], "stop_token_ids": [COMING[early]], "ignore_eos": False}
        ends += [two, regex, token, {**token, "no_stop_trim": True}]
    for one, reply in zip(asks_of(*ends), both(plain, spec, asks_of(*ends)), strict=True):
        assert len(reply.tokens) < 10, one


@pytest.mark.parametrize("field", ["regex", "ebnf"])
def test_grammars_end_inside_an_accepted_run(plain: Client, spec: Client, field: str) -> None:
    words = [f"t{token - 64}" for token in COMING]  # a grammar sees no blanks between them
    texts = {
        "regex": [*("".join(words[:n]) for n in range(1, 7)), f"{words[0]}(t[0-9]+)*"],
        "ebnf": [f'root ::= "{"".join(words[:n])}"' for n in (2, 5)],
    }
    asks = [Ask(PROMPT, {"max_new_tokens": 24, field: text}) for text in texts[field]]
    both(plain, spec, [*asks, *asks_of({"repetition_penalty": 1.5}, {})])


def test_a_grammar_begins_where_the_reasoning_ends(plain: Client, spec: Client) -> None:
    """Reasoning that ends at each place of a run, and then a grammar, or nothing."""
    rules: list[dict[str, Any]] = [
        {f: text} for f, texts in thinking.RULES.items() for text in texts
    ]
    asks = [
        Ask(prompt, {"max_new_tokens": 24, **rule}, reasoning=True)
        for prompt in thinking.prompts().values()
        for rule in [*rules, {}]
    ]
    places = {prompt: place for place, prompt in thinking.prompts().items()}
    assert set(places.values()) == set(range(9))
    for one, reply in zip(asks, both(plain, spec, asks), strict=True):
        place, right = places[one.prompt], ORACLE.greedy(one.prompt, 24)
        free = 24 if len(one.sampling) == 1 else place + 1
        assert list(reply.tokens[:free]) == right[:free] and reply.reasoning == place + 1, one
        if pattern := one.sampling.get("regex"):
            said = "".join(thinking.WORDS[token] for token in reply.tokens[place + 1 :])
            assert re.fullmatch(f"{pattern}<eos>", said) or len(reply.tokens) == 24, one
