"""What is measured on a server: a steady load, a ramp, a load on the edge, a crowd that leaves."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from ..models import held_out
from . import load
from .shape import Shape


class Scene(Protocol):
    """`key` names it in the results; `context` is the length of its prompts, in tokens.

    `warm` fills the prefix cache, `run` gives one measurement.
    """

    @property
    def key(self) -> str: ...
    @property
    def context(self) -> int: ...
    def warm(self, url: str) -> None: ...
    def run(self, url: str) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Steady:
    """`concurrency` requests of `context` tokens that decode together; their tokens a second."""

    shape: Shape
    context: int
    concurrency: int
    new_tokens: int

    @property
    def key(self) -> str:
        return f"steady {self.context} x {self.concurrency}"

    def warm(self, url: str) -> None:
        load.burst(url, self._prompts(), 32)

    def run(self, url: str) -> dict[str, Any]:
        return _told(load.burst(url, self._prompts(), self.new_tokens))

    def _prompts(self) -> list[list[int]]:
        return prompts(self.shape, self.concurrency, self.context)


@dataclass(frozen=True)
class Ramp:
    """1, 2, 4 … `most` … 2, 1 requests, each of the same number of tokens; tokens a second."""

    shape: Shape
    context: int
    most: int
    new_tokens: int

    @property
    def key(self) -> str:
        return f"ramp {self.context} x {self.most}"

    def warm(self, url: str) -> None:
        load.burst(url, prompts(self.shape, self.most, self.context), 32)

    def run(self, url: str) -> dict[str, Any]:
        asked = prompts(self.shape, self.most, self.context)
        return _told(load.ramp(url, [asked[:level] for level in self.levels()], self.new_tokens))

    def levels(self) -> list[int]:
        up = [1 << power for power in range(self.most.bit_length()) if 1 << power < self.most]
        return [*up, self.most, *reversed(up)]


@dataclass(frozen=True)
class Edge:
    """`rows` - 1 long requests, and one short one after the other beside them."""

    shape: Shape
    context: int
    rows: int
    new_tokens: int
    short_tokens: int = 6

    @property
    def key(self) -> str:
        return f"edge {self.context} x {self.rows}"

    def warm(self, url: str) -> None:
        load.burst(url, prompts(self.shape, self.rows, self.context), 32)

    def run(self, url: str) -> dict[str, Any]:
        *long, short = prompts(self.shape, self.rows, self.context)
        before = threshold_state(url)
        found = _told(load.edge(url, long, short, self.new_tokens, self.short_tokens))
        after = threshold_state(url)
        if not after:
            return found
        grown = {key: after[key] - before[key] for key in ("batches_on", "batches_off", "switches")}
        return found | grown | {"batches": grown["batches_on"] + grown["batches_off"]}


@dataclass(frozen=True)
class Return:
    """One long request beside which a crowd comes and goes at once: its accept length.

    Over its cycles, nearly all of which come after the crowd where the crowd switches speculation
    off. The server tells only once the request has ended.
    """

    shape: Shape
    context: int
    crowd: int
    new_tokens: int

    @property
    def key(self) -> str:
        return f"return {self.context} x {self.crowd}"

    def warm(self, url: str) -> None:
        load.burst(url, prompts(self.shape, self.crowd + 1, self.context), 32)

    def run(self, url: str) -> dict[str, Any]:
        watched, *crowd = prompts(self.shape, self.crowd + 1, self.context)
        stream, gone = load.beside(url, watched, self.new_tokens, crowd, 48)
        share = stream.tokens_at(gone) / self.new_tokens
        if share > 0.5:
            raise load.LoadError(
                f"{self.key}: the crowd stayed for {share:.0%} of the request; ask for more tokens "
                "(--return-tokens)"
            )
        found: dict[str, Any] = {"crowd_share": round(share, 3)}
        if (length := load.accept_length([stream])) is not None:
            found["accept_length"] = round(length, 4)
        return found


def threshold_state(url: str) -> dict[str, Any]:
    """What `/server_info` tells of the batch threshold; empty without one."""
    info = httpx.get(f"{url}/server_info", timeout=60).raise_for_status().json()
    return dict(info["internal_states"][0].get("batch_threshold") or {})


def prompts(shape: Shape, count: int, length: int) -> list[list[int]]:
    """`count` prompts of `length` tokens: text where the pair has any, else random ids."""
    if shape.name == "embedded":
        return _text(count, length)
    return load.prompts(count, length, shape.tokens, shape.first)


def _text(count: int, length: int) -> list[list[int]]:
    """Held-out prompts strung together, each from another one on."""
    made = []
    for number in range(count):
        ids: list[int] = []
        while len(ids) < length:
            ids += _corpus()[(7 * number + len(ids)) % len(_corpus())]
        made.append(ids[:length])
    return made


@functools.lru_cache(maxsize=1)
def _corpus() -> Sequence[list[int]]:
    return [json.loads(row)["prompt_ids"] for row in held_out().read_text().splitlines()]


def _told(burst: load.Burst) -> dict[str, Any]:
    found: dict[str, Any] = {"tok_s": round(burst.tok_s, 2), "window": round(burst.window, 3)}
    if burst.accept_length is not None:
        found["accept_length"] = round(burst.accept_length, 4)
    return found
