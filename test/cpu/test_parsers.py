"""Reasoning and tool-call parsers get whole answers where accepted runs straddle their tags.

The scripted pair accepts every draft, so an answer arrives four tokens at a time; the scripts are
shifted so that each tag begins at each place of such a run, and one script cuts tags in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from kit.scripted import Said, scripted
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

STEPS = 3
STOP = "STOP"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            },
        },
    }
]
FILLER = ["Well,", " so,", " now:"]
CALL_BEGINS, CALL_ENDS = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
WANTED = {"a": 2, "b": 2}


class Heard(NamedTuple):
    """What a client is told: `calls` are (name, arguments)."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    finish: str
    tokens: int


def kimi(fillers: list[str]) -> list[str]:
    """Reasoning, text and a call as Kimi-K2 writes them, each tag one token."""
    return [
        *("<think>", *fillers, "I add", " two", " and", " two.", "</think>", "Let me", " see."),
        *(CALL_BEGINS, "<|tool_call_begin|>", "functions.add:0", "<|tool_call_argument_begin|>"),
        *('{"a": 2', ', "b"', ": 2}", "<|tool_call_end|>", CALL_ENDS, STOP),
    ]


SHIFTED = {f"shift {n}": kimi(FILLER[:n]) for n in range(STEPS + 1)}
# `<|tool_call_end|>` stays whole, as it is one token of Kimi's: where it arrives in two chunks,
# upstream's parser streams its beginning as part of the arguments, with speculation or without.
CUT = [
    *("<th", "ink>I add two", " and two.</", "think", ">Let me", " see.<|tool_", "calls_section"),
    *("_begin|><|tool_call", "_begin|>functions", ".add:0<|tool_call_argument_begin|>{", '"a": 2'),
    *(', "b": 2}', "<|tool_call_end|><|tool_calls", "_section_end|>", STOP),
]
KIMI = {**SHIFTED, "tags in pieces": CUT}
FLAGS = ("--context-length", "1024", "--disable-radix-cache")


class Asked(NamedTuple):
    """A plain server and one that speculates, and how both are asked."""

    servers: tuple[Server, Server]
    said: dict[str, Said]


def started(
    servers: ServerPool, pair: Pair, said: dict[str, Said], flags: tuple[str, ...]
) -> Iterator[Asked]:
    skip = "--skip-speculative-self-test"
    plain = Launch(pair.target, None, arguments=(*FLAGS, *flags))
    speculation = Speculation(pair.draft, STEPS, 1, STEPS + 1)
    spec = Launch(pair.target, speculation, arguments=(*FLAGS, *flags, skip))
    own = [servers.start(launch, "parsers") for launch in (plain, spec)]
    try:
        for server in own:
            server.wait_ready()
        yield Asked((own[0], own[1]), said)
    finally:
        for server in own:
            server.stop()


@pytest.fixture(scope="module")
def asked(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    pair, said = scripted(tiny, tmp_path_factory.mktemp("kimi"), KIMI)
    flags = ("--reasoning-parser", "kimi_k2", "--tool-call-parser", "kimi_k2")
    yield from started(servers, pair, said, flags)


def body(said: Said, **more: Any) -> dict[str, Any]:
    return {
        "model": "default",
        "messages": [{"role": "user", "content": said.content}],
        "tools": TOOLS,
        "temperature": 0,
        "max_tokens": len(said.answer_ids) + 2,
        "stop": STOP,
        **more,
    }


def ask(server: Server, said: Said, **more: Any) -> Heard:
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body(said, **more), timeout=600)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    (choice,) = told["choices"]
    message = choice["message"]
    calls = tuple(
        (one["function"]["name"], one["function"]["arguments"])
        for one in message.get("tool_calls") or ()
    )
    tokens = told["usage"]["completion_tokens"]
    reasoning, content = message.get("reasoning_content") or "", message.get("content") or ""
    return Heard(reasoning, content, calls, choice["finish_reason"], tokens)


def stream(server: Server, said: Said, **more: Any) -> tuple[Heard, int]:
    """The same from chunks, put together as a client does; and how many chunks brought a part."""
    text = {"reasoning_content": "", "content": ""}
    calls: dict[int, list[str]] = {}
    finish, tokens, parts = "", 0, 0
    options = body(said, stream=True, stream_options={"include_usage": True}, **more)
    url = f"{server.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=options, timeout=600) as reply:
        for line in reply.iter_lines():
            data = line.removeprefix("data: ")
            if not line.startswith("data: ") or data == "[DONE]":
                continue
            chunk = json.loads(data)
            assert "error" not in chunk, chunk
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
            for choice in chunk["choices"]:
                delta, finish = choice["delta"], choice["finish_reason"] or finish
                for key in text:
                    text[key] += delta.get(key) or ""
                    parts += bool(delta.get(key))
                for one in delta.get("tool_calls") or ():
                    call = calls.setdefault(one["index"], ["", ""])
                    call[0] += one["function"].get("name") or ""
                    call[1] += one["function"].get("arguments") or ""
                    parts += 1
    heard = tuple((name, arguments) for name, arguments in calls.values())
    return Heard(text["reasoning_content"], text["content"], heard, finish, tokens), parts


def both(asked: Asked, name: str, **more: Any) -> Heard:
    """What all four say, streamed and not, plain and speculating; they have to agree."""
    said = asked.said[name]
    plain, spec = asked.servers
    whole = ask(plain, said, **more)
    assert ask(spec, said, **more) == whole
    streamed, _ = stream(plain, said, **more)
    assert streamed == stream(spec, said, **more)[0]
    if whole.finish == "length":  # upstream streams of a call that is cut off, and tells none whole
        return whole
    assert (streamed.calls, streamed.finish) == (whole.calls, whole.finish)
    assert streamed.reasoning.strip() == whole.reasoning.strip()
    assert streamed.content.strip() == whole.content.strip()
    return whole


@pytest.mark.parametrize("name", KIMI)
def test_reasoning_text_and_call(asked: Asked, name: str) -> None:
    heard = both(asked, name)
    before = "".join(FILLER[: int(name[-1])]) if name in SHIFTED else ""
    assert heard.reasoning == f"{before}I add two and two."
    assert heard.content.strip() == "Let me see."
    assert [(name, json.loads(arguments)) for name, arguments in heard.calls] == [("add", WANTED)]
    assert heard.finish == "tool_calls"


def test_without_tools_nothing_is_cut_away(asked: Asked) -> None:
    """The same answer where no call is expected: it stays text, on both servers."""
    heard = both(asked, "shift 2", tools=None)
    assert heard.calls == () and "functions.add:0" in heard.content and heard.finish == "stop"


@pytest.mark.parametrize("most", [3, 6, 9, 10, 13, 15, 17])
def test_cut_off_anywhere(asked: Asked, most: int) -> None:
    """The end of the answer lies within a run, before, in and after each tag."""
    heard = both(asked, "shift 1", max_tokens=most)
    assert heard.tokens == most and heard.finish == "length"


def test_streams_come_in_parts(asked: Asked) -> None:
    """How many is a matter of the load, as waiting ones are joined; a whole answer has 15 at least.

    A reasoning text, a content and a call joined as far as can be are four, so any more were sent
    before the answer was complete.
    """
    for server in asked.servers:
        assert any(stream(server, said)[1] > 4 for _ in range(5) for said in asked.said.values())


def test_runs_did_straddle_the_tags(asked: Asked) -> None:
    """Every draft was accepted, and each tag was at each place of a run in one of the scripts."""
    client = Client(asked.servers[1].url)
    places: dict[str, set[int]] = {"</think>": set(), CALL_BEGINS: set(), CALL_ENDS: set()}
    for name, pieces in KIMI.items():
        said = asked.said[name]
        answer = client.generate(said.prompt_ids, len(pieces))
        assert answer.tokens == said.answer_ids
        assert answer.cycles == -(-(len(pieces) - 1) // (STEPS + 1))  # the first is prefilled
        for tag, found in places.items():
            if name in SHIFTED:
                found.add((pieces.index(tag) - 1) % (STEPS + 1))
    client.close()
    assert all(found == set(range(STEPS + 1)) for found in places.values())


# Two more servers for each pair of parsers, which differ from the above in upstream's code only.
OTHERS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "qwen3": (
        ("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen25"),
        [
            *("<think>", "I add", " two", " and", " two.", "</think>", "<tool_call>", "\n{"),
            *('"name": "add"', ', "arguments": ', '{"a": 2, ', '"b": 2}', "}\n", "</tool_call>"),
            STOP,
        ],
    ),
    "llama3": (
        ("--tool-call-parser", "llama3"),
        [
            *("<|python_tag|>", '{"name"', ': "add", ', '"parameters"', ': {"a"', ": 2, ", '"b"'),
            *(": 2", "}", "}", STOP),
        ],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERS)
def test_other_parsers(servers: ServerPool, tiny: Pair, tmp_path: Any, name: str) -> None:
    flags, pieces = OTHERS[name]
    pair, said = scripted(tiny, tmp_path, {name: pieces})
    for asked in started(servers, pair, said, flags):
        heard = both(asked, name)
        calls = [(name, json.loads(arguments)) for name, arguments in heard.calls]
        assert calls == [("add", WANTED)] and heard.finish == "tool_calls"
        assert heard.reasoning == ("I add two and two." if name == "qwen3" else "")
