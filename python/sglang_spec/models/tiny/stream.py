"""Where things lie in the residual streams of the tiny pair.

Each place is one dimension that is 1 or 0. A bit takes three: its two values and `IDLE`, so that
"nothing was read" is told from "0 was read", and so that the number of ones never changes: with
64 ones in 256 dimensions every RMSNorm multiplies by exactly 2, its weight by exactly 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_spec.models.tiny.plan import BITS, Plan

HIDDEN = 256
ONES = 64
NORM_WEIGHT = 0.5
IDLE = 2

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Stream:
    """Names for the dimensions of a residual stream.

    Attributes:
        places: every named place in the order of dimensions; unnamed dimensions stay 0.
        ones: the places that are 1 before anything is known, filler included.
    """

    places: tuple[Place, ...]
    ones: tuple[Place, ...]
    _index: dict[Place, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.places) > HIDDEN or len(self.ones) > ONES:
            raise ValueError(f"{len(self.places)} places, {len(self.ones)} ones do not fit")
        object.__setattr__(self, "_index", {place: i for i, place in enumerate(self.places)})

    def __call__(self, *place: str | int) -> int:
        """The dimension of a place; KeyError for a place the stream does not have."""
        return self._index[place]


def _bits(name: str, values: int) -> list[Place]:
    return [(name, bit, value) for bit in range(BITS) for value in range(values)]


def _stream(places: list[Place], known: list[Place], idle: list[str], unknown_ones: int) -> Stream:
    """Adds filler so that, with the `unknown_ones` that tokens bring, 64 places are 1."""
    ones = [*known, *((name, bit, IDLE) for name in idle for bit in range(BITS))]
    filler: list[Place] = [("filler", i) for i in range(ONES - unknown_ones - len(ones))]
    return Stream((*places, *filler), (*ones, *filler))


def target_stream(plan: Plan) -> Stream:
    """The target's residual.

    `one` is always 1; `first` and `later` tell BOS from the rest; `sum`, `token` and `answer`
    hold S, the own token's code and y; `read1`, `read2` are what attention brings, emptied by
    the MLP that follows; `depth` counts the layers passed.
    """
    places: list[Place] = [("one",), ("first",), ("later",)]
    places += _bits("sum", 3) + _bits("token", 2) + _bits("answer", 3)
    places += _bits("read1", 3) + _bits("read2", 3)
    places += [("depth", i) for i in range(plan.layers + 1)]
    tokens_bring = 1 + 2 * BITS  # first or later, sum and token
    return _stream(places, [("one",), ("depth", 0)], ["answer", "read1", "read2"], tokens_bring)


def draft_stream() -> Stream:
    """The draft's residual: what `fc` makes of three captured layers, and what a step hands on.

    As in the target, with two more reads: `leaving` (the token that drops out of the window) and
    `entering` (the token of the own row's embedding). `slot i` is 1 if the i-th captured layer
    was the right one.
    """
    places: list[Place] = [("one",), ("first",), ("later",)]
    places += _bits("sum", 3) + _bits("token", 2) + _bits("answer", 3)
    reads = ["read1", "read2", "leaving", "entering"]
    for name in reads:
        places += _bits(name, 3)
    slots: list[Place] = [("slot", i) for i in range(3)]
    tokens_bring = 1 + 2 * BITS
    return _stream([*places, *slots], [("one",), *slots], ["answer", *reads], tokens_bring)
