"""Prompts for a target to answer, made of templates and of what `sources` finds. Needs no torch.

    prompts.jsonl.xz    {"kind": "chat", "text": "..."}, kinds chat, code, completion, docs, math

The same packages and the same seed give the same lines, byte for byte; their sha256 (before they
are packed) stands in the recipe. A prompt that shares a run of `RUN` words with a held-out one is
left out.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import sources, subjects
from .recipe import Prompts
from .sources import Package, SourceError, Unit

RUN = 12
_DOCUMENTS = (
    "Explain this in simple words:\n\n{text}",
    "Summarise the following text:\n\n{text}",
    "What does `{name}` do?\n\n{text}",
    "Continue this text:\n\n{half}",
    "Rewrite this more clearly:\n\n{text}",
    "What is `{name}` used for?",
    "Write a short example that uses `{name}`. Its documentation says:\n\n{text}",
    "Write a Python function: {first}",
    "List the key points of this text:\n\n{text}",
    "Write a question and an answer about this text:\n\n{text}",
    "Who would need this, and when?\n\n{text}",
    "Turn this into a short paragraph for beginners:\n\n{text}",
)
_FUNCTIONS = (
    "What does this code do?\n\n```python\n{code}\n```",
    "Add comments to this code:\n\n```python\n{code}\n```",
    "Rewrite this code so that it is easier to read:\n\n```python\n{code}\n```",
    "Write a test for this function:\n\n```python\n{code}\n```",
    "Find mistakes in this code:\n\n```python\n{code}\n```",
    "Complete this function:\n\n```python\n{half}\n```",
)
_COMPLETION = "Complete this Python function:\n\n```python\n{head}\n```"


class PromptsError(ValueError):
    """Prompts that cannot be built, or are not those of the recipe."""


@dataclass(frozen=True)
class Built:
    """A finished file of prompts: how many of each kind, from what, and its sha256."""

    path: Path
    kinds: dict[str, int]
    packages: tuple[Package, ...]
    left_out: int
    sha256: str

    def to_json(self) -> dict[str, object]:
        return {
            "prompts": self.kinds,
            "left_out": self.left_out,
            "sha256": self.sha256,
            "packages": [
                {"name": one.name, "version": one.version, "licence": one.licence}
                for one in self.packages
            ],
        }


def build(wanted: Prompts, path: Path, held_out: Iterable[str] = ()) -> Built:
    """Build the prompts of a recipe into `path`.

    Args:
        held_out: texts of which no run of `RUN` words may occur.

    Raises:
        PromptsError: a package is not as the recipe has it, or the file has another sha256.
    """
    try:
        packages = tuple(map(sources.installed, wanted.packages))
    except SourceError as error:
        raise PromptsError(str(error)) from error
    forbidden = {run for text in held_out for run in _runs(text)}
    rows: list[tuple[str, str]] = []
    seen: set[str] = set()
    kinds: dict[str, int] = {}
    left_out = 0
    for kind, count, texts in _kinds(wanted, packages):
        for text in texts:
            if kinds.get(kind, 0) == count:
                break
            if text in seen:
                continue
            if forbidden and any(run in forbidden for run in _runs(text)):
                left_out += 1
                continue
            seen.add(text)
            rows.append((kind, text))
            kinds[kind] = kinds.get(kind, 0) + 1
    random.Random(wanted.seed).shuffle(rows)
    lines = [json.dumps({"kind": k, "text": t}, ensure_ascii=False) + "\n" for k, t in rows]
    content = "".join(lines).encode()
    made = hashlib.sha256(content).hexdigest()
    if wanted.sha256 and made != wanted.sha256:
        raise PromptsError(
            f"prompts.sha256 is {wanted.sha256[:12]}…, the prompts built here have {made[:12]}…: a "
            "package or the builder has changed. Take prompts.jsonl.xz along, or write the new one"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(content, preset=3))
    return Built(path, kinds, packages, left_out, made)


def read(path: Path, sha256: str | None) -> list[tuple[str, str]]:
    """(kind, text) of every prompt of a finished file.

    Raises:
        PromptsError: there is none, or it is not the one of the recipe.
    """
    if not path.is_file():
        raise PromptsError(f"{path} is not there; run `sglang-spec train prompts` first")
    content = lzma.decompress(path.read_bytes())
    found = hashlib.sha256(content).hexdigest()
    if sha256 and found != sha256:
        raise PromptsError(
            f"{path} has sha256 {found[:12]}…, the recipe's prompts.sha256 is {sha256[:12]}…: "
            "remove the file, or take the key out of the recipe"
        )
    rows = map(json.loads, content.decode().splitlines())
    return [(row["kind"], row["text"]) for row in rows]


def _kinds(
    wanted: Prompts, packages: Sequence[Package]
) -> Iterator[tuple[str, int, Iterator[str]]]:
    """(kind, how many, texts in random order) of each kind; each has a random state of its own."""
    if wanted.documents or wanted.functions or wanted.completions:
        found = [unit for package in packages for unit in sources.units(package)]
        docs = [u for u in found if len(u.doc) > 120 and u.doc.isascii()]
        codes = [u for u in found if 150 < len(u.code) < 1200]
        heads = [u for u in found if 120 < len(u.head) < 900 and u.head.count('"""') == 2]
        yield "docs", wanted.documents, _drawn(docs, _document, wanted.seed + 1)
        yield "code", wanted.functions, _drawn(codes, _function, wanted.seed + 2)
        yield "completion", wanted.completions, _drawn(heads, _completion, wanted.seed + 3)
    yield "chat", wanted.topics, subjects.questions(random.Random(wanted.seed + 4))
    yield "math", wanted.arithmetic, subjects.sums(random.Random(wanted.seed + 5))


def _drawn(
    pool: list[Unit], make: Callable[[random.Random, Unit], str], seed: int
) -> Iterator[str]:
    """Every unit in turn, with a template drawn for it, at most four times round."""
    draw = random.Random(seed)
    order = list(pool)
    for _ in range(4):
        draw.shuffle(order)
        for unit in order:
            yield make(draw, unit)


def _document(draw: random.Random, unit: Unit) -> str:
    text = unit.doc[: draw.choice((250, 400, 600, 800))].rsplit(" ", 1)[0].strip()
    first = re.split(r"(?<=\.)\s", unit.doc.strip())[0][:200].replace("\n", " ")
    half = text[: len(text) // 2]
    return draw.choice(_DOCUMENTS).format(text=text, half=half, name=unit.name, first=first)


def _function(draw: random.Random, unit: Unit) -> str:
    lines = unit.code.splitlines()
    half = "\n".join(lines[: max(2, len(lines) // 2)])
    return draw.choice(_FUNCTIONS).format(code=unit.code[:900], half=half)


def _completion(draw: random.Random, unit: Unit) -> str:
    return _COMPLETION.format(head=unit.head)


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    for at in range(len(words) - RUN + 1):
        yield tuple(words[at : at + RUN])
