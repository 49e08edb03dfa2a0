"""Run the demo: four servers, two questions, the held-out prompts, one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..client import Answer, Client
from ..models import ModelError, Pair, embedded_pair, held_out
from ..server import Launch, Server, ServerError, Speculation
from . import equality, report

QUESTIONS = ("What is 2+2? Answer briefly.", "Say hello in one word")
LOGS = Path("build/logs")


@dataclass(frozen=True)
class Settings:
    """`prompts` held-out prompts of at most `max_new_tokens` new tokens each."""

    prompts: int = 20
    max_new_tokens: int = 96


def main(settings: Settings, output: Path | None, as_json: bool) -> int:
    """The whole demo. 0 fine, 1 if a server failed or float32 outputs differ."""
    console = Console(stderr=True)
    try:
        figures = measure(settings, console)
    except (ModelError, ServerError, httpx.HTTPError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; every server is stopped, nothing was written", file=sys.stderr)
        return 130
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2) if as_json else report.table(figures))
    if not figures["greedy_equal"]:
        print("demo: float32 outputs with and without EAGLE3 differ", file=sys.stderr)
        return 1
    return 0


def measure(settings: Settings, console: Console) -> dict[str, Any]:
    pair = embedded_pair()
    prompts = choose(held_out(), settings.prompts)
    new = settings.max_new_tokens
    with steps(console) as step:
        with servers(pair, "bfloat16", step) as (base, spec):
            answers = {question: _text(spec.chat(question)) for question in QUESTIONS}
            plain, fast = interleaved(base, spec, prompts, new, step)
            differences = explain(base, prompts, plain, fast, step)
        with servers(pair, "float32", step) as (base, spec):
            exact = in_parallel(base, spec, prompts, new, step)
    return report.figures(answers, plain, fast, differences, exact)


def choose(path: Path, count: int) -> list[list[int]]:
    """`count` prompts spread evenly over the held-out file, as lists of token ids."""
    rows = path.read_text().splitlines()
    return [json.loads(rows[i * len(rows) // count])["prompt_ids"] for i in range(count)]


Step = Callable[[str, int], Callable[[], None]]


@contextmanager
def steps(console: Console) -> Iterator[Step]:
    """A progress bar per step on stderr: `advance = step("name", total)`."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:

        def step(name: str, total: int) -> Callable[[], None]:
            task = progress.add_task(name, total=total)
            return lambda: progress.advance(task)

        yield step


@contextmanager
def servers(pair: Pair, dtype: str, step: Step) -> Iterator[tuple[Client, Client]]:
    """A server without speculation and one with EAGLE3, both warm, started side by side."""
    advance = step(f"start two servers ({dtype})", 2)
    plain = Launch(pair.target, dtype=dtype)
    fast = Launch(pair.target, Speculation(pair.draft), dtype=dtype)
    with (
        Server(plain, LOGS / f"demo-base-{dtype}.log") as left,
        Server(fast, LOGS / f"demo-spec-{dtype}.log") as right,
    ):
        for server in (left, right):
            server.wait_ready()
            advance()
        clients = Client(left.url), Client(right.url)
        for client in clients:
            client.generate([1, 2, 3], 16, ignore_eos=True)
        yield clients
        for client in clients:
            client.close()


def interleaved(
    base: Client, spec: Client, prompts: list[list[int]], new: int, step: Step
) -> tuple[list[Answer], list[Answer]]:
    """Each prompt on both servers, one request at a time, the first server alternating."""
    advance = step("prompts, with and without EAGLE3", len(prompts))
    plain: list[Answer] = []
    fast: list[Answer] = []
    for number, prompt in enumerate(prompts):
        turns = [(base, plain), (spec, fast)]
        for client, answers in turns if number % 2 == 0 else reversed(turns):
            client.flush_cache()
            answers.append(client.generate(prompt, new))
        advance()
    return plain, fast


def explain(
    base: Client, prompts: list[list[int]], plain: list[Answer], fast: list[Answer], step: Step
) -> list[equality.Difference]:
    """Every prompt whose bfloat16 answers part, with the gap between the two tokens."""
    parted = [
        (number, position)
        for number, (left, right) in enumerate(zip(plain, fast, strict=True))
        if (position := equality.first_difference(left.tokens, right.tokens)) is not None
    ]
    advance = step("look at bfloat16 differences", len(parted))
    found = []
    for number, position in parted:
        token = fast[number].tokens[position]
        answer = plain[number].tokens
        found.append(equality.explain(base, number, prompts[number], answer, position, token))
        advance()
    return found


def in_parallel(
    base: Client, spec: Client, prompts: list[list[int]], new: int, step: Step
) -> list[bool]:
    """Whether each prompt's float32 answers are equal; both servers work at the same time."""
    advance = step("prompts again in float32", len(prompts))
    equal = []
    with ThreadPoolExecutor(2) as pool:
        for prompt in prompts:
            left = pool.submit(base.generate, prompt, new)
            right = pool.submit(spec.generate, prompt, new)
            equal.append(left.result().tokens == right.result().tokens)
            advance()
    return equal


def _text(reply: dict[str, Any]) -> str:
    return str(reply["choices"][0]["message"]["content"])
