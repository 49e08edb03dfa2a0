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
    devices, where the cost of events has not been measured, the counts.

    Raises:
        ValueError: the value is none of the levels' names.
    """
    if given is None:
        return Level.PHASES if device == "cpu" else Level.COUNTS
    names = {level.name.lower(): level for level in Level}
    if given not in names:
        raise ValueError(f"{FLAG} {given}: write one of {', '.join(names)}.")
    return names[given]
