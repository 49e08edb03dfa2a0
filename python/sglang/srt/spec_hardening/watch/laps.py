"""The marks of the cycles that are under way, read when they can be read without waiting.

On an accelerator a mark is an event on the stream, and the host is far ahead of it: a lap is kept
until the event of its end is done. Taking times costs the host more than counting, so only every
n-th cycle may be timed; of the one before it the end is marked, where the wait begins. Imports
without torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from .phases import PREPARE, WAIT, Cycle

# Laps that are not read yet, at most; a device that is further behind loses the oldest.
MOST_OUT = 64


class Clock(Protocol):
    """Marks moments of a device (`threshold.stopwatch`)."""

    def mark(self) -> Any: ...

    def passed(self, mark: Any) -> bool: ...

    def seconds(self, begun: Any, ended: Any) -> float: ...


@dataclass
class _Lap:
    """`timed` is False where only the end is marked, for the wait of the cycle after."""

    rows: int
    requests: frozenset[str]
    timed: bool
    begins: list[tuple[str, Any]] = field(default_factory=list)
    ended: Any = None


class Laps:
    """Takes the time of one rank's cycles; `done` is called with each timed one that is over."""

    def __init__(self, clock: Clock, done: Callable[[Cycle], None], every: int = 1) -> None:
        """`every` which cycle is timed, the first being one; a number that has no factor with what
        else comes at regular intervals meets that in its true share."""
        self._clock = clock
        self._done = done
        self.every = every
        self._number = -1
        self._lap: _Lap | None = None
        self._last: _Lap | None = None
        self._out: deque[_Lap] = deque(maxlen=MOST_OUT)

    def passes_over(self) -> bool:
        """Count a cycle that begins now; whether nothing of it is marked, so that `begin` is not
        to be called."""
        self._number = (self._number + 1) % self.every
        if self._number == 0 or self._number == self.every - 1:
            return False
        self._lap = self._last = None
        return True

    def begin(self, requests: Collection[str]) -> None:
        """A decode cycle of these requests (their ids) begins; it prepares its first forward."""
        lap = _Lap(len(requests), frozenset(requests), self._number <= 0)
        last, self._last, self._lap = self._last, None, lap
        if not lap.timed:
            return
        self.settle()
        # A server that idled has other requests now, or had a prefill.
        if last is not None and not lap.requests.isdisjoint(last.requests):
            lap.begins.append((WAIT, last.ended))
        lap.begins.append((PREPARE, self._clock.mark()))

    def mark(self, phase: str) -> None:
        """The phase before ends and `phase` begins; nothing outside of a timed cycle."""
        lap = self._lap
        if lap is not None and lap.timed:
            lap.begins.append((phase, self._clock.mark()))

    def end(self) -> None:
        """The cycle is over, as far as its rank launches it."""
        if (lap := self._lap) is not None:
            lap.ended = self._clock.mark()
            self._lap, self._last = None, lap
            if lap.timed:
                self._out.append(lap)

    def interrupt(self) -> None:
        """Something that is no decode cycle runs now; what comes next did not wait for this one."""
        self._lap = self._last = None

    def settle(self) -> None:
        """Hand over the laps that the device is through with; never waits for it."""
        while self._out and self._clock.passed(self._out[0].ended):
            lap = self._out.popleft()
            marks = [*(mark for _, mark in lap.begins), lap.ended]
            seconds: dict[str, float] = {}
            for (phase, begun), ended in zip(lap.begins, marks[1:], strict=True):
                seconds[phase] = seconds.get(phase, 0.0) + self._clock.seconds(begun, ended)
            self._done(Cycle(lap.rows, seconds))
