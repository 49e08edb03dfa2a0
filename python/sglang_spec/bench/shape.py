"""What is served: a pair of checkpoints, and the flags that go with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..models import Pair, embedded_pair, tiny_pair
from ..models.tiny.plan import BOS, SPECIALS, VOCABULARY
from . import weightless
from .weightless import Weightless


@dataclass(frozen=True)
class Shape:
    """`tokens` are the ids that prompts are drawn from, the last excluded; `first` opens a text.

    `weights` says what a pair without weights would weigh.
    """

    name: str
    pair: Callable[[], Pair]
    tokens: tuple[int, int]
    first: int = 1
    arguments: tuple[str, ...] = ()
    spec_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    weights: Weightless | None = None


def shapes(accept_length: float) -> dict[str, Shape]:
    """All there are; `accept_length` is what those without weights are made to accept."""
    made = (
        _dummy("llama-8b", weightless.llama_8b(), (1000, 100_000), accept_length),
        _dummy("llama-70b", weightless.llama_70b(), (1000, 100_000), accept_length),
        _dummy("kimi-cut", weightless.kimi_cut(), (1000, 100_000), accept_length),
        _dummy("kimi-small", weightless.kimi_small(), (SPECIALS, VOCABULARY), accept_length),
        _dummy("small", weightless.small(), (1000, 4000), accept_length),
        Shape("embedded", embedded_pair, (1000, 40_000)),
        Shape("tiny", tiny_pair, (SPECIALS, VOCABULARY), BOS),
    )
    return {shape.name: shape for shape in made}


def _dummy(name: str, weights: Weightless, tokens: tuple[int, int], accept_length: float) -> Shape:
    return Shape(
        name,
        weights.pair,
        tokens,
        1,
        ("--load-format", "dummy", "--skip-tokenizer-init"),
        ("--speculative-draft-load-format", "dummy"),
        {"SGLANG_SIMULATE_ACC_LEN": str(accept_length)},
        weights,
    )
