"""How answers end, and how grammars begin and end, at each place of an accepted run.

Each check asks a plain server and one that speculates, on a CPU (`test/cpu/test_fidelity_ends.py`)
or a GPU (`test/gpu/test_fidelity_ends.py`). Both have a reasoning parser: a grammar waits for the
end of the reasoning, if there is one.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from sglang_spec.client import Client

from kit import thinking
from kit.asking import Ask
from kit.fidelity_servers import COMING, ORACLE, PROMPT, asks_of, both


def check_answers_end_inside_a_run(plain: Client, spec: Client) -> None:
    words = [f"t{token - 64}" for token in COMING]
    cut = [{"max_new_tokens": n} for n in range(1, 10)]
    ids = [{"stop_token_ids": [token], "ignore_eos": False} for token in COMING[:9]]
    strings = [{"stop": [f"{a} {b}"]} for a, b in pairwise(words[:10])]
    kept = [{**one, "no_stop_trim": True} for one in strings]
    regexes = [{"stop_regex": f"{a} t[0-9]+ "} for a in words[:6]]
    asks = asks_of(*cut, *ids, *strings, *kept, *regexes, logprobs=True)
    replies = both(plain, spec, asks)
    assert {len(reply.tokens) for reply in replies} >= set(range(1, 10))


def check_first_of_several_ends_counts(plain: Client, spec: Client) -> None:
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


def check_grammars_end_inside_a_run(plain: Client, spec: Client, field: str) -> None:
    words = [f"t{token - 64}" for token in COMING]  # a grammar sees no blanks between them
    texts = {
        "regex": [*("".join(words[:n]) for n in range(1, 7)), f"{words[0]}(t[0-9]+)*"],
        "ebnf": [f'root ::= "{"".join(words[:n])}"' for n in (2, 5)],
    }
    asks = [Ask(PROMPT, {"max_new_tokens": 24, field: text}) for text in texts[field]]
    both(plain, spec, [*asks, *asks_of({"repetition_penalty": 1.5}, {})])


def check_grammar_begins_where_the_reasoning_ends(plain: Client, spec: Client) -> None:
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


def check_sampled_answers_keep_to_their_grammar(plain: Client, spec: Client) -> None:
    """With a seed, so that there is one right answer; half of them reason before."""
    asks = [
        Ask(
            prompt,
            {"max_new_tokens": 24, "sampling_seed": place, **heat, field: text},
            reasoning=on,
        )
        for place, prompt in thinking.prompts().items()
        for heat in (
            {"max_new_tokens": 24, "temperature": 1.0},
            {"max_new_tokens": 24, "temperature": 4.0, "min_p": 0.01},
        )
        for field in ("json_schema", "structural_tag", "regex")
        for text in thinking.RULES[field][:1]
        for on in (False, True)
    ]
    replies = both(plain, spec, asks)
    schemas = zip(asks, replies, strict=True)
    ended = [r.text for a, r in schemas if "json_schema" in a.sampling and not a.reasoning]
    assert all(list(json.loads(text)) == ["said"] for text in ended if text.endswith("}"))
    assert sum(sum(reply.accepted[1:]) for reply in replies) > 0


def check_reasoning_is_counted_up_to_the_end(plain: Client, spec: Client) -> None:
    """It ends before the reasoning does, or with it, at each place of a run."""
    prompt = thinking.prompts()[8]
    coming = ORACLE.greedy(prompt, 9)
    words = [thinking.WORDS[token] for token in coming]
    ends: list[dict[str, Any]] = [{"max_new_tokens": n} for n in range(1, 10)]
    ends += [{"stop_token_ids": [token]} for token in coming]
    ends += [{"stop": [word + " "]} for word in words] + [{"stop_regex": words[5] + " t[0-9]+ "}]
    asks = [Ask(prompt, {"max_new_tokens": 24, **end}, reasoning=True) for end in ends]
    asks += [
        Ask(one.prompt, {**one.sampling, "regex": "(t[0-9]+)+"}, reasoning=True) for one in asks
    ]
    for one, reply in zip(asks, both(plain, spec, asks), strict=True):
        assert reply.reasoning == min(len(reply.tokens), 9), one


def chatted(client: Client, prompt: tuple[int, ...], stream: bool, **fields: Any) -> list[Any]:
    """Reasoning, content, end and usage of a chat answer, put together if it is streamed."""
    options = {"stream_options": {"include_usage": True}} if stream else {}
    reply = client.post(
        "/v1/chat/completions",
        model="default",
        messages=[{"role": "user", "content": thinking.message(prompt)}],
        temperature=0,
        max_tokens=32,
        stream=stream,
        **options,
        **fields,
    )
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    bodies = [json.loads(line) for line in lines if line != "[DONE]"]
    text = {"reasoning_content": "", "content": ""}
    for choice in (choice for body in bodies for choice in body["choices"]):
        for key in text:
            text[key] += choice["delta" if stream else "message"].get(key) or ""
        finish = choice["finish_reason"]
    usage = bodies[-1]["usage"]
    return [*text.values(), finish, usage["completion_tokens"], usage["reasoning_tokens"]]


def check_chat_answer_is_reasoned_and_keeps_to_its_format(plain: Client, spec: Client) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "said", "schema": thinking.SCHEMA}}
    tags = {"type": "structural_tag", **thinking.STRUCTURES}
    for place, form in ((1, schema), (3, schema), (4, schema), (6, schema), (4, tags)):
        prompt = thinking.prompts(chat=True)[place]
        whole, streamed = (
            [chatted(one, prompt, stream, response_format=form) for one in (plain, spec)]
            for stream in (False, True)
        )
        assert whole[0] == whole[1] and streamed[0] == streamed[1]
        assert streamed[0][2:] == whole[0][2:] and whole[0][-1] == place + 1
        assert whole[0][0].split() == [
            thinking.WORDS[token] for token in ORACLE.greedy(prompt, place)
        ]
        if form is schema:
            assert list(json.loads(whole[0][1])) == ["said"]
