"""Unit tests for streamed Qwen calls cut anywhere, into chunks of any length: no server."""

import json
import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.function_call.function_call_parser import FunctionCallParser

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_TOOLS = [
    Tool.model_validate(
        {
            "type": "function",
            "function": {"name": "weather", "parameters": {"type": "object"}},
        }
    )
]
_CALL = '<tool_call>\n{"name": "weather", "arguments": %s}\n</tool_call>'
_FIRST = _CALL % '{"city": "S\\u00e3o \\"P\\"", "days": [1, {}]}'
_SECOND = _CALL % '{"city": "b[c", "in": {"F": true}}'
_TEXT = f"{_FIRST}\n{_SECOND}"
_STRING = _CALL % '"Paris, \\"F\\" 7"'
_LENGTHS = (2, 7, 40, len(_TEXT))


def _streamed(chunks: list[str]) -> tuple[str, dict[int, list[str]]]:
    """The text and, by index, name and arguments of what a client was sent at the end."""
    parser = FunctionCallParser(_TOOLS, "qwen25")
    content, calls = "", []
    for step in [*(lambda c=c: parser.parse_stream_chunk(c) for c in chunks), None]:
        text, items = step() if step else parser.parse_stream_end()
        content += text
        calls += [(i.tool_index, i.name or "", i.parameters or "") for i in items]
    request = SimpleNamespace(model="m")
    rest = OpenAIServingChat._check_for_unstreamed_tool_args(
        None, parser, {"meta_info": {"id": "i"}}, request, 0, created=0
    )
    if rest:
        delta = json.loads(rest.removeprefix("data: "))["choices"][0]["delta"]
        (call,) = delta["tool_calls"]
        calls.append((call["index"], "", call["function"]["arguments"]))
    joined: dict[int, list[str]] = {}
    for index, name, arguments in calls:
        entry = joined.setdefault(index, ["", ""])
        entry[0] += name
        entry[1] += arguments
    return content, joined


def _cuts(text: str):
    for length in _LENGTHS:
        for first in range(min(length, 4, len(text))):
            starts = (
                [0, *range(first, len(text), length)]
                if first
                else range(0, len(text), length)
            )
            bounds = [*starts, len(text)]
            yield [text[a:b] for a, b in zip(bounds, bounds[1:])]


class TestCallsInAnyCut(CustomTestCase):
    def test_a_call_that_comes_whole_in_the_last_chunk_has_its_arguments(self):
        _, calls = _streamed([_FIRST])
        self.assertEqual(list(calls), [0])
        self.assertEqual(calls[0][0], "weather")
        self.assertEqual(json.loads(calls[0][1]), {"city": 'São "P"', "days": [1, {}]})

    def test_calls_that_end_anywhere_do_not_depend_on_the_cut(self):
        for end in range(1, len(_TEXT) + 1):
            text = _TEXT[:end]
            _, right = _streamed(list(text))
            for chunks in _cuts(text):
                _, calls = _streamed(chunks)
                self.assertEqual(calls, right, chunks)

    def test_arguments_that_are_a_string_do_not_depend_on_the_cut(self):
        for end in range(_STRING.index("Paris") + 1, len(_STRING) + 1):
            text = _STRING[:end]
            _, right = _streamed(list(text))
            sent = json.loads(right[0][1])
            self.assertTrue('Paris, "F" 7'.startswith(sent) and sent, right)
            for chunks in _cuts(text):
                _, calls = _streamed(chunks)
                self.assertEqual(calls, right, chunks)


if __name__ == "__main__":
    unittest.main()
