"""The same answers with speculation as without it, from the embedded pair in float32.

Chat requests that plain SGLang answers otherwise, requests drawn over all fields, and grammars that
begin where a reasoning of several tokens' tag ends.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks, fidelity_table, lossless, same_answers, thinking
from kit.asking import Ask, ask
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, embedded_pair, held_out


@pytest.fixture
def clients(servers: ServerPool, embedded: Pair) -> list[Client]:
    """One of a plain server, one of a server that speculates."""
    return [servers.client(launch) for launch in lossless.launches(embedded).values()]


RECORD: dict[str, Any] = json.loads(
    (Path(fidelity_table.__file__).with_name("plain_fidelity.json")).read_text()
)["cases"]


# What was never wrong is asked by the tests of the OpenAI client too, so here only in full runs.
@pytest.mark.parametrize(
    "case",
    [
        *fidelity_table.FAULTY,
        *(pytest.param(case, marks=pytest.mark.full) for case in fidelity_table.EQUAL),
    ],
)
def test_speculation_does_not_change_the_embedded_pairs_answer(
    clients: list[Client], case: str
) -> None:
    plain, spec = clients
    assert fidelity_table.answer(spec, case) == fidelity_table.answer(plain, case)


@pytest.mark.parametrize("case", fidelity_table.CASES)
def test_plain_upstream_changed_it(case: str) -> None:
    """The record of the same requests to plain SGLang, made by `python -m kit.plain_fidelity`."""
    assert RECORD[case]["equal"] == (case in fidelity_table.EQUAL)


@cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(embedded_pair().target))


def chats() -> dict[tuple[int, ...], list[int]]:
    """The shortest held-out prompts, and what the pair answers to each of itself."""
    rows = [json.loads(line) for line in held_out().read_text().splitlines()]
    short = sorted(rows, key=lambda row: len(row["prompt_ids"]))[:24]
    return {tuple(row["prompt_ids"]): row["greedy_answer_ids"] for row in short}


RULES = {
    "regex": [r"(Yes|No|The answer is [0-9]{1,3}\.)", r"[A-Z][a-z ]{1,40}\."],
    "ebnf": ['root ::= "Here are " [a-z ]+ "."'],
    "json_schema": [json.dumps(fidelity_table.SCHEMA)],
}


def drawn() -> st.SearchStrategy[list[Ask]]:
    answers = chats()
    source = drawn_asks.Source(
        prompts=st.sampled_from(list(answers)),
        coming=lambda prompt, count: answers[prompt][:count],
        text=lambda tokens: str(tokenizer().decode(list(tokens))),
        lifted=(28, 30, 198, 216, 260),
        lift=4,
        rules=RULES,
        reasoning=False,
        seeded=False,
    )
    return st.lists(drawn_asks.asks(source), min_size=4, max_size=12)


# The same examples in every run: in float32 two tokens may be as good as equal, if seldom.
DRAWN = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@DRAWN
@given(st.deferred(drawn))
def test_drawn_requests_get_the_plain_answers(clients: list[Client], asks: list[Ask]) -> None:
    same_answers.both(*clients, asks, same_answers.EMBEDDED_TOLERANCE)


@pytest.mark.full  # for its time
@settings(DRAWN, max_examples=40)
@given(st.deferred(drawn))
def test_many_drawn_requests_get_the_plain_answers(clients: list[Client], asks: list[Ask]) -> None:
    same_answers.both(*clients, asks, same_answers.EMBEDDED_TOLERANCE)


def test_logprobs_of_the_neighbouring_position_are_found(clients: list[Client]) -> None:
    """And the tolerance is well above what plain decoding differs by in other batches."""
    asks = [Ask(prompt, {"max_new_tokens": 24}, logprobs=True) for prompt in list(chats())[:4]]
    replies = same_answers.both(*clients, asks, same_answers.EMBEDDED_TOLERANCE)
    for one, reply in zip(asks, replies, strict=True):
        assert same_answers.unseen_shifts(one, reply, same_answers.EMBEDDED_TOLERANCE) == []
    together = ask(clients[0], asks)
    alone = [ask(clients[0], [one])[0] for one in asks]
    floor = max(map(same_answers.farthest, alone, together))
    assert 0 < floor < same_answers.EMBEDDED_TOLERANCE / 2


SHOWN = """Q: 2+2?
I add two and two.
</think>
4

Q: 3+4?
I add three and four.
</think>
7

Q: 5+1?
"""
AFTER = (r"\n[0-9]", r"\n(seven|six)\.", r"[a-f]{1,9}", r"\n[0-9]{1,3}\n\nQ: [a-z ]{1,20}")


@pytest.mark.full  # a reasoning parser changes every chat, so these are two more servers
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_grammar_begins_after_a_tag_of_three_tokens(
    servers: ServerPool, embedded: Pair, steps: int
) -> None:
    """Steps move the runs, and so the place of the tag in them."""
    plain, spec = lossless.launches(embedded).values()
    assert spec.speculation is not None
    speculation = replace(spec.speculation, num_steps=steps, num_draft_tokens=steps + 1)
    flags = (*spec.arguments, *thinking.PARSER)
    launches = (
        replace(plain, arguments=(*plain.arguments, *thinking.PARSER)),
        replace(spec, speculation=speculation, arguments=flags),
    )
    prompt = tuple(tokenizer().encode(SHOWN))
    assert len(tokenizer().encode("</think>")) == 3
    rules = [{"regex": text} for text in AFTER] + [{"json_schema": RULES["json_schema"][0]}, {}]
    asks = [Ask(prompt, {"max_new_tokens": 32, **rule}, reasoning=True) for rule in rules]
    asks += [replace(one, sampling={**one.sampling, "frequency_penalty": 0.25}) for one in asks]
    replies = same_answers.both(
        *map(servers.client, launches), asks, same_answers.EMBEDDED_TOLERANCE
    )
    for one, reply in zip(asks[: len(rules)], replies, strict=False):
        assert 3 < reply.reasoning < len(reply.tokens), one
