"""The official `openai` package gets from a speculating server what a plain one says."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from kit import fidelity_table, lossless
from kit.servers import ServerPool
from sglang_spec.models import Pair

QUESTION = [{"role": "user", "content": "Give me three facts about bees."}]
TOLERANCE = 1e-3  # of logprobs


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


FIELDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "penalties": {"frequency_penalty": 0.8, "presence_penalty": 0.6},
    "extra fields": {"extra_body": {"repetition_penalty": 1.2, "min_tokens": 20}},
    "a bias": {"logit_bias": {"260": 4, "28": -100}},
    "a stop string": {"stop": ["bees"]},
    "two choices": {"n": 2, "frequency_penalty": 0.5},
    "a schema": {"response_format": fidelity_table.BY_NUMBER, "max_tokens": 48},
    "one token": {"max_tokens": 1},
    "a processor": {"extra_body": fidelity_table.ONLY, "max_tokens": 6},
}


@pytest.mark.parametrize("name", FIELDS)
def test_chat(clients: list[openai.OpenAI], name: str) -> None:
    plain, spec = (chat(client, **FIELDS[name]) for client in clients)
    assert choices(spec) == choices(plain)
    assert spec.usage.completion_tokens == plain.usage.completion_tokens


def test_streamed_chunks_make_up_the_answer(clients: list[openai.OpenAI]) -> None:
    fields = {"frequency_penalty": 0.8, "max_tokens": 40}
    texts = []
    for client in clients:
        chunks = list(chat(client, stream=True, stream_options={"include_usage": True}, **fields))
        said = [chunk.choices[0] for chunk in chunks if chunk.choices]
        texts.append("".join(one.delta.content or "" for one in said))
        assert [one.finish_reason for one in said if one.finish_reason] == ["length"]
        assert chunks[-1].usage.completion_tokens == 40
    assert texts[0] == texts[1] == chat(clients[0], **fields).choices[0].message.content


def test_logprobs(clients: list[openai.OpenAI]) -> None:
    fields = {"logprobs": True, "top_logprobs": 4, "presence_penalty": 0.5}
    plain, spec = (chat(client, **fields).choices[0].logprobs.content for client in clients)
    assert [one.token for one in spec] == [one.token for one in plain]
    for ours, theirs in zip(spec, plain, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=TOLERANCE)
        best = [[one.logprob for one in place.top_logprobs] for place in (ours, theirs)]
        assert best[0] == pytest.approx(best[1], abs=TOLERANCE)


def test_completions(clients: list[openai.OpenAI]) -> None:
    options: dict[str, Any] = {
        "model": "default",
        "prompt": ["The capital of France is", "Bees are"],
        "temperature": 0,
        "max_tokens": 24,
        "frequency_penalty": 1.0,
        "stop": ["\n\n"],
    }
    plain, spec = (client.completions.create(**options) for client in clients)
    assert [one.text for one in spec.choices] == [one.text for one in plain.choices]


def test_json_without_a_schema(clients: list[openai.OpenAI]) -> None:
    """A grammar that the server makes by itself."""
    fields = {"response_format": {"type": "json_object"}, "max_tokens": 24, "presence_penalty": 0.3}
    plain, spec = (chat(client, **fields) for client in clients)
    assert choices(spec) == choices(plain)
