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

    `one` is always 1; `first` and `later` tell BOS from the rest; `token` holds the own token's
    code; `depth` counts the layers passed. S goes back and forth between `sum0` and `sum1`, and
    layers take turns with two sets of reads, so that what a broken layer leaves behind is not
    mistaken for the work of the next. The final layer turns S into `answer`, the bits of y.
    `fault` counts what was missing on the way: 0, or something is broken.
    """
    places: list[Place] = [("one",), ("first",), ("later",), ("fault",)]
    places += _bits("token", 2) + _bits("answer", 2)
    reads = [*read_names(0), *read_names(1)]
    for name in ("sum0", "sum1", *reads):
        places += _bits(name, 3)
    places += [("depth", i) for i in range(plan.layers + 1)]
    tokens_bring = 1 + 2 * BITS  # first or later, token and sum0
    return _stream(places, [("one",), ("depth", 0)], ["sum1", *reads], tokens_bring)


def sum_name(layer: int) -> str:
    """Where the target's sum is before that layer (after it: `sum_name(layer + 1)`)."""
    return f"sum{layer % 2}"


def read_names(layer: int) -> tuple[str, str]:
    """Where the target's attention of that layer puts what it reads."""
    return f"near{layer % 2}", f"far{layer % 2}"


def draft_stream() -> Stream:
    """The draft's residual: what `fc` makes of three captured layers, and what a step hands on.

    As in the target, with two more reads: `leaving` (the token that drops out of the window) and
    `entering` (the token of the own row's embedding). `slot i` is 1 if the i-th captured layer
    was the right one.
    """
    places: list[Place] = [("one",), ("first",), ("later",), ("fault",)]
    places += _bits("sum", 3) + _bits("token", 2) + _bits("answer", 3)
    reads = ["read1", "read2", "leaving", "entering"]
    for name in reads:
        places += _bits(name, 3)
    slots: list[Place] = [("slot", i) for i in range(3)]
    tokens_bring = 1 + 2 * BITS
    return _stream([*places, *slots], [("one",), *slots], ["answer", *reads], tokens_bring)
