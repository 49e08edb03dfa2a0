"""`--speculative-watch`: how much of a server that speculates is watched. Imports without torch."""

from __future__ import annotations

from enum import IntEnum

FLAG = "--speculative-watch"


class Level(IntEnum):
    """`COUNTS`: acceptance by position, switches, the alarm; `PHASES`: times of each cycle too."""

    OFF = 0
    COUNTS = 1
    PHASES = 2


def level_of(given: str | None, device: str) -> Level:
    """The level that the flag's value says.

    Not given, it is what costs less than was measured to matter: on a CPU everything, on other
    devices, where events were measured to cost too much when each cycle had some, the counts.

    Raises:
        ValueError: the value is none of the levels' names.
    """
    if given is None:
        return Level.PHASES if device == "cpu" else Level.COUNTS
    names = {level.name.lower(): level for level in Level}
    if given not in names:
        raise ValueError(f"{FLAG} {given}: write one of {', '.join(names)}.")
    return names[given]


def timed_every(device: str) -> int:
    """Every which cycle is timed.

    The host's clock costs next to nothing, an event on a stream some microseconds, and a fast cycle
    has seven of them. The number is prime, so that it meets what comes with every 16th or 40th
    cycle (the comparison of the ranks, the log line) as often as it should.
    """
    return 1 if device == "cpu" else 17
