"""When to stop early: Ctrl-C, SIGTERM, or a limit on this call. What is done by then is kept."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Any


class Stop:
    """`with Stop(minutes) as stop: ... if stop: save and leave`.

    The first signal only asks; a second one ends the process as it would have without us.

    Attributes:
        reason: why to stop, "" while there is no reason.
    """

    def __init__(self, minutes: float = 0.0) -> None:
        self._end = time.monotonic() + 60 * minutes if minutes else None
        self._minutes = minutes
        self._before: dict[signal.Signals, Any] = {}
        self._signal = ""

    @property
    def reason(self) -> str:
        if self._signal:
            return self._signal
        if self._end is not None and time.monotonic() >= self._end:
            return f"{self._minutes:g} minutes of this call are over"
        return ""

    @property
    def interrupted(self) -> bool:
        """Stopped by a signal, not by the clock."""
        return bool(self._signal)

    def __bool__(self) -> bool:
        return bool(self.reason)

    def __enter__(self) -> Stop:
        for one in (signal.SIGINT, signal.SIGTERM):
            self._before[one] = signal.signal(one, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)
        self._before = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
