"""The time of live decode batches, from the begin of one to the begin of the next.

A mark (`stopwatch`) at the begin of a batch that is timed and one at the next: an event on the
stream that is read in a later batch, once the device is past it. Nothing waits. `watch` takes the
times of phases where the operator asks for them, seven marks a cycle; what a table is corrected by
has to be known at every level of watching and needs two marks in `EVERY` batches. Imports without
torch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from ..watch.laps import MOST_OUT, Clock
from .drift import Drift

# Batches after a switch or a prefill that are not timed, as when the table is measured.
WARM = 2
# After a switch so many batches are all timed, so that a probe is enough to know what cycles cost;
# later one in `EVERY`, which has no divisor in common with the steps between two catching-ups.
DENSE, EVERY = 32, 7


@dataclass(frozen=True)
class _Lap:
    speculative: bool
    rows: int
    context: float
    begun: Any


class Sampler:
    """Tells `drift` what live batches take; asked at each of them, in launch order."""

    def __init__(self, clock: Clock, drift: Drift) -> None:
        self._clock = clock
        self.drift = drift
        self._open: _Lap | None = None
        self._out: deque[tuple[_Lap, Any]] = deque(maxlen=MOST_OUT)
        self._on: bool | None = None
        # Batches since the last switch, and since the last switch or prefill.
        self._since_switch = self._undisturbed = 0

    def batch(self, on: bool, rows: int, tokens: int, catches_up: bool) -> None:
        """A decode batch is about to be launched; nothing of it is yet.

        Args:
            on: whether it speculates; tokens: context of all its rows; catches_up: whether the
            draft catches up in it, which is no part of most batches of its kind.
        """
        self._settle()
        self.drift.batch()
        if on is not self._on:
            self._on, self._since_switch, self._undisturbed = on, 0, 0
        is_due = self._since_switch < DENSE or self._since_switch % EVERY == 0
        takes_time = is_due and self._undisturbed >= WARM and not catches_up
        self._since_switch += 1
        self._undisturbed += 1
        if self._open is None and not takes_time:
            return
        mark = self._clock.mark()
        if self._open is not None:
            self._out.append((self._open, mark))
        self._open = _Lap(on, rows, tokens / rows, mark) if takes_time else None

    def prefilled(self) -> None:
        """A prefill comes between this batch and the next. New requests always begin with one, so
        that no time in which the server idled is taken for a batch's."""
        self._open = None
        self._undisturbed = 0

    def _settle(self) -> None:
        """Read the laps that the device is through with; never waits for it."""
        while self._out and self._clock.passed(self._out[0][1]):
            lap, ended = self._out.popleft()
            seconds = self._clock.seconds(lap.begun, ended)
            self.drift.add(lap.speculative, lap.rows, lap.context, seconds)
