"""Chat requests whose answers speculation must not change: those it changed upstream, and others.

Asked of the embedded pair in float32, where equal means equal to the last character.
`kit.plain_fidelity` records what plain SGLang does with them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sglang_spec.client import Client

from kit import processors

BEES = "Give me five facts about bees."
SUM = "What is 2+2? Answer briefly."
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
BY_NUMBER = {
    "type": "json_schema",
    "json_schema": {"name": "person", "schema": SCHEMA},
}
ONLY = {
    "custom_logit_processor": processors.text_of(processors.OnlyToken),
    "custom_params": {"token": 260},
}
REMEMBERS = {
    "custom_logit_processor": processors.text_of(processors.Remembers),
    "custom_params": {},
}

FAULTY: dict[str, dict[str, Any]] = {
    "frequency_penalty 1.0": {"question": BEES, "max_tokens": 64, "frequency_penalty": 1.0},
    "presence_penalty 1.5": {"question": BEES, "max_tokens": 64, "presence_penalty": 1.5},
    "repetition_penalty 1.3": {"question": BEES, "max_tokens": 64, "repetition_penalty": 1.3},
    "min_new_tokens 12": {"question": SUM, "max_tokens": 80, "min_tokens": 12},
    "min_new_tokens 30": {"question": SUM, "max_tokens": 80, "min_tokens": 30},
    "one token only": {"question": BEES, "max_tokens": 8, **ONLY},
    "a processor that remembers": {"question": BEES, "max_tokens": 24, **REMEMBERS},
    "a grammar and a penalty": {
        "question": "Name a person.",
        "max_tokens": 48,
        "response_format": BY_NUMBER,
        "frequency_penalty": 0.5,
    },
}
EQUAL: dict[str, dict[str, Any]] = {
    "nothing": {"question": BEES, "max_tokens": 48},
    "stop strings": {"question": BEES, "max_tokens": 48, "stop": ["bees", ". "]},
    "stop token ids": {"question": SUM, "max_tokens": 48, "stop_token_ids": [28, 30]},
    "logit bias": {"question": BEES, "max_tokens": 32, "logit_bias": {"260": 5, "28": -100}},
    "a JSON schema": {"question": "Name a person.", "max_tokens": 48, "response_format": BY_NUMBER},
    "a regex": {"question": SUM, "max_tokens": 32, "regex": r"The answer is [0-9]{1,3}\."},
    "an EBNF grammar": {"question": SUM, "max_tokens": 32, "ebnf": 'root ::= ("4" | "four") "!"'},
    "two answers": {"question": SUM, "max_tokens": 24, "n": 2},
    "one token": {"question": BEES, "max_tokens": 1},
    "two tokens": {"question": BEES, "max_tokens": 2},
    "ignore_eos": {"question": SUM, "max_tokens": 40, "ignore_eos": True},
}
CASES = FAULTY | EQUAL


@dataclass(frozen=True)
class Said:
    """An answer as a user sees it."""

    texts: list[str]
    finish: list[str]
    tokens: int


def answer(client: Client, case: str) -> Said:
    """One greedy chat request."""
    body = json.loads(json.dumps(CASES[case]))
    reply = client.post(
        "/v1/chat/completions",
        model="default",
        temperature=0,
        messages=[{"role": "user", "content": body.pop("question")}],
        **body,
    )
    assert reply.status_code == 200, reply.text[:500]
    said = reply.json()
    return Said(
        [choice["message"]["content"] or "" for choice in said["choices"]],
        [choice["finish_reason"] for choice in said["choices"]],
        said["usage"]["completion_tokens"],
    )
