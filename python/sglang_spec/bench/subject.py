"""The pair of checkpoints under test, its texts, and the sides made from them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import host
from ..models import Pair, embedded_pair, tiny_pair
from ..server import Launch
from . import mask, mode, record
from .cells import Cell
from .corpus import Corpus, CorpusError, of_embedded, of_file, of_tiny
from .shape import Shape
from .side import Side

PAIRS = ("embedded", "tiny")
UPSTREAM = "upstream"
_HASHED = 2**20  # bytes at the front of each file; a checkpoint's header lies there


@dataclass(frozen=True)
class Subject:
    """`pair` and the text for it; `name` is what the results call them."""

    name: str
    pair: Pair
    corpus: Corpus

    @property
    def shape(self) -> Shape:
        return Shape(self.name, lambda: self.pair, (0, 0))


def subject(
    pair: str | None, model: str | None, draft: str | None, prompts: Path | None
) -> Subject:
    """The named pair, or target and draft by folder or hub id; `prompts` is its text.

    Raises:
        CorpusError: a model without text, or half of a pair.
        ModelError: the pair cannot be made.
    """
    if model is None and draft is None:
        tiny = pair == "tiny"
        found = tiny_pair() if tiny else embedded_pair()
        own = of_tiny if tiny else of_embedded
        text = of_file(prompts, found.target) if prompts else own()
        return Subject("tiny" if tiny else "embedded", found, text)
    if model is None or draft is None:
        raise CorpusError("give both --model and --draft")
    if prompts is None:
        raise CorpusError(
            "give --prompts FILE, JSON lines with `text`, `messages` or `input_ids`: acceptance on "
            "random tokens misleads, so there is no default"
        )
    return Subject(
        Path(model).name,
        Pair(Path(model), Path(draft)),
        of_file(prompts, Path(model)),
    )


def settings(
    subject: Subject,
    cells: Sequence[Cell],
    threshold: int,
    extra: Sequence[str],
    dtype: str,
    together: int = 1,
) -> mode.Settings:
    """What all launched sides have in common: room for the largest cell, and how they stream.

    On a GPU an event carries 8 tokens (`mode`), or the one thread of the client would be the limit;
    a server takes what the memory holds, or with others beside it (`together`) what it needs.
    """
    on_cpu = host.device() == "cpu"
    most = most_requests(cells)
    need = max(cell.kv_tokens for cell in cells)
    return mode.Settings(
        subject.shape,
        None,
        threshold=threshold,
        most_requests=most,
        kv_tokens=max(16384, need) if on_cpu or together > 1 else 0,
        dtype=dtype,
        extra=(*(("--stream-interval", "1") if on_cpu else ()), *extra),
    )


def most_requests(cells: Sequence[Cell]) -> int:
    """Requests that a server has to run at a time; 32 for open loops."""
    return max(cell.concurrency or 32 for cell in cells)


def of_modes(names: Sequence[str], common: mode.Settings) -> list[Side]:
    """A side for each of `mode.ALL`; ValueError for another name."""
    return [Side(name, made := mode.launch(name, common), flags=flags(made)) for name in names]


def of_upstream(python: Path, common: mode.Settings) -> Side:
    """The static mode on another environment, plain SGLang for instance."""
    return elsewhere(Side(UPSTREAM, mode.launch(mode.STATIC, common)), python)


def elsewhere(side: Side, python: Path) -> Side:
    """`side` launched by another interpreter, which does not see this one's module path."""
    assert side.launch is not None
    # By `env`, as what watches over the server still needs that path.
    launch = replace(side.launch, python=("env", "-u", "PYTHONPATH", str(python)))
    return Side(side.name, launch, flags=side.flags or flags(launch))


def of_urls(urls: Sequence[tuple[str, str]]) -> list[Side]:
    return [Side(name, url=url) for name, url in urls]


def flags(launch: Launch) -> str:
    """The speculative arguments of a launch on one line; empty without speculation."""
    words = [*(launch.speculation.arguments() if launch.speculation else ()), *launch.arguments]
    kept = []
    for at, word in enumerate(words):
        if word.startswith("--speculative"):
            value = words[at + 1 : at + 2]
            kept += [word, *(value if value and not value[0].startswith("--") else ())]
    return " ".join(kept)


def header(subject: Subject, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The first line of a run file: what was measured, on what, with what."""
    provenance: Any = import_module("sglang_spec.hardening.provenance")
    pin = provenance.of_this_tree()
    return {
        "settings": {"pair": subject.name, "corpus": subject.corpus.describe(), **settings},
        "host": record.host(),
        "pin": {"version": pin.version, "spec": pin.spec, "patch_set": pin.patch_set,
                "wheel_sha256": pin.wheel_sha256, "changed": list(pin.changed)},
        "checkpoints": {"model": checkpoint(subject.pair.target),
                        "draft": checkpoint(subject.pair.draft)},
        "argv": mask.words(sys.argv[1:]),
    }  # fmt: skip


def checkpoint(folder: Path) -> dict[str, Any]:
    """Name and hash of a checkpoint: of each file its name, size and first megabyte.

    `sha256` is None for a hub id, whose files are not here.
    """
    if not folder.is_dir():
        return {"name": str(folder), "sha256": None}
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors"))
    told = []
    for path in files:
        with path.open("rb") as file:
            told.append(
                (path.name, path.stat().st_size, hashlib.sha256(file.read(_HASHED)).hexdigest())
            )
    return {
        "name": folder.name,
        "sha256": hashlib.sha256(json.dumps(told).encode()).hexdigest(),
        "bytes": sum(size for _, size, _ in told),
    }
