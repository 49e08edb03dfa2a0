"""When `auto` changes, and why it is as it is: numbers and names. Imports without torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    UNMEASURED = "unmeasured"
    GAIN = "gain"
    WAIT = "wait"
    PROBE = "probe"


@dataclass(frozen=True)
class Rules:
    """When to change: counted in batches, never in seconds.

    Speculation comes on above a gain of 1 + `margin` and goes off below 1, once what the present
    state has lost against the other adds up to `patience` plain steps: a load that swings about the
    crossing loses nothing on average and changes nothing, one that leaves it is followed in a few
    batches. A state is kept for `dwell` batches at least; but cycles, of which one may cost several
    steps when a burst comes, end once they have lost `limit` plain steps. Where it is off only
    because few drafts were accepted, or because cycles took longer than at start when they were
    last timed, it is tried again for `dwell` batches, `probe` at least (fewer could not be timed),
    after `first_probe` batches, and after twice as many each time it fails.
    """

    margin: float = 0.03
    patience: float = 1.0
    dwell: int = 16
    limit: float = 8.0
    probe: int = 16
    first_probe: int = 256
    last_probe: int = 8192
