"""The target's own answers: what a draft has to learn. By a plain batched loop or a real server.

    answers/00000.jsonl    {"kind", "temperature", "prompt_ids": [...], "answer_ids": [...]}
    answers/self.jsonl     {"prompt_ids": [...]}, prompts whose user turn the target wrote itself
    answers/answers.json   how many, and the seconds they took

One file a batch, written whole or not at all, so a run that was stopped goes on where it was. The
lines are those that `sglang-spec capture dump --prompts` reads.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .chat import Chat
from .recipe import Recipe
from .stop import Stop

SUMMARY = "answers.json"
_SELF = "self.jsonl"
_SORTED = 8  # batches whose prompts are sorted by length together

Encoded = tuple[str, list[int]]
Answering = Callable[[Sequence[Sequence[int]], int, float], list[list[int]]]


class AnswersError(ValueError):
    """Answers that are not there or do not belong together."""


@dataclass(frozen=True)
class Made:
    """What the folder holds now; `complete` if every batch that the recipe asks for is there, or
    its minutes are used up."""

    answers: int
    tokens: int
    seconds: float
    complete: bool

    def to_json(self) -> dict[str, object]:
        rounded = round(self.seconds, 1)
        return {"answers": self.answers, "tokens": self.tokens, "seconds": rounded}


def make(
    recipe: Recipe,
    target: Path,
    prompts: Sequence[tuple[str, str]],
    folder: Path,
    stop: Stop,
    say: Callable[[str], None],
) -> Made:
    """Answer the prompts of a recipe into `folder`, until its minutes are over or `stop` says so.

    Args:
        prompts: (kind, text).
        say: told of every batch.
    """
    wanted = recipe.answers
    folder.mkdir(parents=True, exist_ok=True)
    chat = Chat(target)
    texts = chat.encode([text for _, text in prompts])
    rows = [(kind, ids) for (kind, _), ids in zip(prompts, texts, strict=True)]
    spent = _seconds(folder)
    with answering(recipe, target) as answer:
        began = time.monotonic() - spent
        if wanted.self_written:
            rows += _self_written(recipe, chat, folder, answer, stop, say)
        if stop:  # the plan of batches needs all of its prompts
            return _note(folder, time.monotonic() - began, False)
        batches = _batches(rows, recipe)
        for number, batch in enumerate(batches):
            file = folder / f"{number:05d}.jsonl"
            if file.exists():
                continue
            over = wanted.minutes and time.monotonic() - began > 60 * wanted.minutes
            if over or stop:
                return _note(folder, time.monotonic() - began, bool(over))
            temperature = wanted.temperatures[number % len(wanted.temperatures)]
            made = answer([ids for _, ids in batch], wanted.new_tokens, temperature)
            _write(file, list(_lines(batch, made, temperature)))
            tokens, seconds = sum(map(len, made)), time.monotonic() - began
            say(f"batch {number + 1} of {len(batches)}: {tokens} tokens, {seconds:.0f} s in all")
            _note(folder, seconds, False)
        return _note(folder, time.monotonic() - began, True)


def read(folder: Path) -> list[dict[str, Any]]:
    """Every answer, batch by batch.

    Raises:
        AnswersError: there is none.
    """
    files = sorted(folder.glob("[0-9]*.jsonl"))
    if not files:
        raise AnswersError(f"{folder} holds no answers; run `sglang-spec train answers` first")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@contextmanager
def answering(recipe: Recipe, target: Path) -> Iterator[Answering]:
    """`answer(prompts, new_tokens, temperature)` by the engine that the recipe names."""
    if recipe.answers.engine == "sglang":
        with _server(recipe, target) as by_server:
            yield by_server
        return
    from .device import dtype_of, here
    from .generate import Generator, Request
    from .target import Target

    wanted, device = recipe.answers, here()
    loaded = Target(target, dtype_of(recipe.target.dtype), device)
    columns = wanted.longest_prompt + max(wanted.new_tokens, wanted.self_tokens)
    generator = Generator(loaded, wanted.rows, columns, wanted.seed)
    end = int(loaded.shape.config["eos_token_id"])

    def answer(
        prompts: Sequence[Sequence[int]], new_tokens: int, temperature: float
    ) -> list[list[int]]:
        request = Request(new_tokens, temperature, end, wanted.stop_share)
        return generator(prompts, request)

    yield answer


@contextmanager
def _server(recipe: Recipe, target: Path) -> Iterator[Answering]:
    from ..client import Client
    from ..server import Launch, Server

    launch = Launch(target, dtype=recipe.target.dtype)
    with Server(launch, Path("build/logs/train-answers.log")) as server:
        client = Client(server.wait_ready(1800).url)
        yield lambda prompts, new, temperature: [
            list(one.tokens) for one in client.generate_batch(prompts, new, temperature=temperature)
        ]
        client.close()


def _self_written(
    recipe: Recipe,
    chat: Chat,
    folder: Path,
    answer: Answering,
    stop: Stop,
    say: Callable[[str], None],
) -> list[Encoded]:
    """Prompts whose user turn the target wrote: finished turns of more than four tokens, once each.

    They are what the model was taught users say, and cost nothing but seconds.
    """
    wanted, file = recipe.answers, folder / _SELF
    if not file.exists():
        turns: dict[tuple[int, ...], None] = {}
        for _ in range(4 * (-(-wanted.self_written // wanted.rows))):
            if stop or len(turns) >= wanted.self_written:
                break
            made = answer([chat.before] * wanted.rows, wanted.self_tokens, 1.0)
            finished = [tuple(turn[:-1]) for turn in made if turn[-1] == chat.end]
            turns |= dict.fromkeys(turn for turn in finished if len(turn) > 4)
            say(f"{len(turns)} user turns written by the target")
        if stop:
            return []
        kept = list(turns)[: wanted.self_written]
        _write(file, [{"prompt_ids": [*chat.before, *turn, *chat.after]} for turn in kept])
    lines = file.read_text().splitlines()
    return [("self", json.loads(line)["prompt_ids"]) for line in lines]


def _batches(rows: list[Encoded], recipe: Recipe) -> list[list[Encoded]]:
    """Batches of prompts of like length, in an order that says nothing of it."""
    size, draw = recipe.answers.rows, random.Random(recipe.answers.seed)
    rows = [row for row in rows if len(row[1]) <= recipe.answers.longest_prompt]
    draw.shuffle(rows)
    made = []
    for begin in range(0, len(rows), size * _SORTED):
        group = sorted(rows[begin : begin + size * _SORTED], key=lambda row: len(row[1]))
        part = [group[at : at + size] for at in range(0, len(group), size)]
        draw.shuffle(part)
        made += part
    return made


def _lines(
    batch: list[Encoded], answers: list[list[int]], temperature: float
) -> Iterator[dict[str, Any]]:
    for (kind, prompt), answer in zip(batch, answers, strict=True):
        yield {
            "kind": kind,
            "temperature": temperature,
            "prompt_ids": prompt,
            "answer_ids": answer,
        }


def _write(file: Path, lines: list[dict[str, Any]]) -> None:
    partial = file.with_suffix(".partial")
    with partial.open("w") as out:
        out.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    os.replace(partial, file)


def _seconds(folder: Path) -> float:
    path = folder / SUMMARY
    return float(json.loads(path.read_text())["seconds"]) if path.exists() else 0.0


def _note(folder: Path, seconds: float, complete: bool) -> Made:
    files = sorted(folder.glob("[0-9]*.jsonl"))
    path = folder / SUMMARY
    known = json.loads(path.read_text()).get("files", {}) if path.exists() else {}
    for file in files:
        if file.name not in known:
            lines = file.read_text().splitlines()
            known[file.name] = [len(lines), sum(len(json.loads(x)["answer_ids"]) for x in lines)]
    counts = [known[file.name] for file in files]
    made = Made(sum(c[0] for c in counts), sum(c[1] for c in counts), seconds, complete)
    text = {**made.to_json(), "complete": complete, "files": known}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(text) + "\n")
    os.replace(partial, path)
    return made
