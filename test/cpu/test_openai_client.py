"""The official `openai` package gets from a speculating server what a plain one says."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from kit import fidelity_table, lossless
from kit.same_answers import EMBEDDED_TOLERANCE
from kit.servers import ServerPool
from sglang_spec.models import Pair

QUESTION = [{"role": "user", "content": "Give me three facts about bees."}]


@pytest.fixture(scope="module")
def clients(servers: ServerPool, embedded: Pair) -> list[openai.OpenAI]:
    """One of a plain server, one of a server that speculates."""
    urls = [servers.server(launch).url for launch in lossless.launches(embedded).values()]
    return [openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) for url in urls]


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    options = {"model": "default", "messages": QUESTION, "temperature": 0, "max_tokens": 32}
    return client.chat.completions.create(**{**options, **fields})


def choices(answer: Any) -> list[tuple[Any, ...]]:
    return [(one.message.content, one.finish_reason) for one in answer.choices]


# Of what is sampled one token is left, so that there is one right answer.
FIELDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "penalties": {"frequency_penalty": 0.8, "presence_penalty": 0.6},
    "extra fields": {"extra_body": {"repetition_penalty": 1.2, "min_tokens": 20}},
    "a bias": {"logit_bias": {"260": 4, "28": -100}},
    "stop strings": {"stop": ["bees", "."], "frequency_penalty": 0.8},
    "three choices": {"n": 3, "frequency_penalty": 0.5},
    "a top-p of one token": {"temperature": 1.0, "top_p": 1e-6, "presence_penalty": 0.5},
    "a top-k of one": {"temperature": 1.0, "extra_body": {"top_k": 1}},
    "a min-p of one": {"temperature": 1.0, "extra_body": {"min_p": 1.0}},
    "a schema": {"response_format": fidelity_table.BY_NUMBER, "max_tokens": 48},
    "one token": {"max_tokens": 1},
    "a processor": {"extra_body": fidelity_table.ONLY, "max_tokens": 6},
}


@pytest.mark.parametrize("name", FIELDS)
def test_chat(clients: list[openai.OpenAI], name: str) -> None:
    plain, spec = (chat(client, **FIELDS[name]) for client in clients)
    assert choices(spec) == choices(plain)
    assert len(spec.choices) == FIELDS[name].get("n", 1)
    assert spec.usage.completion_tokens == plain.usage.completion_tokens


STREAMED: dict[str, dict[str, Any]] = {
    "penalties": {"frequency_penalty": 0.8, "max_tokens": 40},
    "two choices and logprobs": {"n": 2, "presence_penalty": 0.5, "logprobs": True},
    "a stop string": {"stop": ["bees"], "frequency_penalty": 0.8},
    "a schema": FIELDS["a schema"],
}


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[list[tuple[Any, ...]], int]:
    """The choices that the chunks make up, and the tokens of all."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(chat(client, **options, **fields))
    made: list[tuple[Any, ...]] = []
    for index in range(fields.get("n", 1)):
        said = [one for chunk in chunks for one in chunk.choices if one.index == index]
        content = "".join(one.delta.content or "" for one in said)
        (finish,) = [one.finish_reason for one in said if one.finish_reason]
        tokens = [entry.token for one in said if one.logprobs for entry in one.logprobs.content]
        made.append((content, finish, tokens))
    return made, chunks[-1].usage.completion_tokens


@pytest.mark.parametrize("name", STREAMED)
def test_streamed_chunks_make_up_the_answer(clients: list[openai.OpenAI], name: str) -> None:
    plain, spec = (streamed(client, **STREAMED[name]) for client in clients)
    assert spec == plain
    whole = chat(clients[0], **STREAMED[name])
    assert [(content, finish) for content, finish, _ in spec[0]] == choices(whole)
    if STREAMED[name].get("logprobs"):
        tokens = [[entry.token for entry in one.logprobs.content] for one in whole.choices]
        assert [seen for *_, seen in spec[0]] == tokens
    assert spec[1] == whole.usage.completion_tokens


def test_logprobs(clients: list[openai.OpenAI]) -> None:
    fields = {"logprobs": True, "top_logprobs": 4, "presence_penalty": 0.5}
    plain, spec = (chat(client, **fields).choices[0].logprobs.content for client in clients)
    assert [one.token for one in spec] == [one.token for one in plain]
    for ours, theirs in zip(spec, plain, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=EMBEDDED_TOLERANCE)
        best = [[one.logprob for one in place.top_logprobs] for place in (ours, theirs)]
        assert best[0] == pytest.approx(best[1], abs=EMBEDDED_TOLERANCE)


def test_completions(clients: list[openai.OpenAI]) -> None:
    options: dict[str, Any] = {
        "model": "default",
        "prompt": ["The capital of France is", "Bees are"],
        "temperature": 0,
        "max_tokens": 24,
        "frequency_penalty": 1.0,
        "stop": ["\n\n"],
        "n": 2,
        "logprobs": 2,
    }
    plain, spec = (client.completions.create(**options) for client in clients)
    assert len(spec.choices) == 4
    assert [one.text for one in spec.choices] == [one.text for one in plain.choices]
    for ours, theirs in zip(spec.choices, plain.choices, strict=True):
        assert ours.logprobs.tokens == theirs.logprobs.tokens
        right = pytest.approx(theirs.logprobs.token_logprobs, abs=EMBEDDED_TOLERANCE)
        assert ours.logprobs.token_logprobs == right


def test_json_without_a_schema(clients: list[openai.OpenAI]) -> None:
    """A grammar that the server makes by itself."""
    fields = {"response_format": {"type": "json_object"}, "max_tokens": 24, "presence_penalty": 0.3}
    plain, spec = (chat(client, **fields) for client in clients)
    assert choices(spec) == choices(plain)
