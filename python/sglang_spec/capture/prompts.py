"""Prompts of a dump: JSON lines of token ids, text or chat messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class PromptError(ValueError):
    """A line that is no prompt; the text names file and line."""


@dataclass(frozen=True)
class Prompt:
    """One sample to capture.

    Attributes:
        number: the line's place in the file, from 0; it names the sample.
        loss_runs: (value, tokens) runs of the loss mask, () where the line has none.
    """

    number: int
    input_ids: tuple[int, ...]
    loss_runs: tuple[tuple[int, int], ...] = ()


def read_prompts(path: Path, model: Path, longest: int | None = None) -> Iterator[Prompt]:
    """The prompts of a file, tokenized where they are not token ids.

    A line is an object with one of
        input_ids                      token ids; loss_mask (0 or 1 each) may stand beside them
        prompt_ids and answer_ids      (or greedy_answer_ids): the answer counts for the loss
        text                           tokenized as it is
        messages                       a chat, through the model's template

    Args:
        longest: longer prompts are cut to this many tokens.

    Raises:
        PromptError: a line that is none of these.
    """
    tokenizer: Any = None
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            try:
                entry = json.loads(line)
                if tokenizer is None and not ({"input_ids", "prompt_ids"} & entry.keys()):
                    tokenizer = _tokenizer(model)
                ids, runs = _one(entry, tokenizer)
            except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
                raise PromptError(f"{path}:{number + 1}: no prompt ({error!r})") from error
            if not ids:
                raise PromptError(f"{path}:{number + 1}: a prompt of no tokens")
            yield Prompt(number, tuple(ids[:longest]), _cut(runs, longest))


def _one(entry: dict[str, Any], tokenizer: Any) -> tuple[list[int], list[tuple[int, int]]]:
    if "input_ids" in entry:
        ids = [int(token) for token in entry["input_ids"]]
        return ids, _runs([int(bit) for bit in entry.get("loss_mask", ())])
    if "prompt_ids" in entry:
        prompt = [int(token) for token in entry["prompt_ids"]]
        answer = entry.get("answer_ids") or entry.get("greedy_answer_ids") or []
        return [*prompt, *map(int, answer)], [(0, len(prompt)), (1, len(answer))]
    if "text" in entry:
        return list(tokenizer(entry["text"])["input_ids"]), []
    rendered = tokenizer.apply_chat_template(entry["messages"], tokenize=False)
    return list(tokenizer(rendered, add_special_tokens=False)["input_ids"]), []


def _tokenizer(model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def _runs(mask: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for bit in mask:
        if runs and runs[-1][0] == bit:
            runs[-1] = (bit, runs[-1][1] + 1)
        else:
            runs.append((bit, 1))
    return runs


def _cut(runs: list[tuple[int, int]], longest: int | None) -> tuple[tuple[int, int], ...]:
    if longest is None:
        return tuple(runs)
    kept, left = [], longest
    for bit, count in runs:
        if left > 0:
            kept.append((bit, min(count, left)))
            left -= count
    return tuple(kept)
