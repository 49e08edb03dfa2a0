"""When a decode batch speculates: two bounds on its rows and a least stay, counted in batches.

Every rank decides for itself. What goes in is therefore equal on every rank (the rows of the
batch), and time is counted in decode batches: a clock would differ between ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Bounds:
    """Off at `leave_at` rows or more, on again at `enter_at` rows or fewer.

    Attributes:
        leave_at: rows from which a batch does not speculate.
        enter_at: rows down to which speculation has to wait before it returns; fewer than
            `leave_at`. 0 means that it does not return: a batch has a row at least.
        dwell: decode batches between two changes, at least. 1 means none.

    Raises:
        ValueError: the numbers are at odds with each other.
    """

    leave_at: int
    enter_at: int
    dwell: int

    def __post_init__(self) -> None:
        if not (0 <= self.enter_at < self.leave_at and self.dwell >= 1):
            raise ValueError(f"{self}: 0 <= enter_at < leave_at and dwell >= 1 must hold")


class Decider(Protocol):
    """Says for each decode batch, in launch order, whether it speculates."""

    @property
    def reason(self) -> str:
        """Why the last decision was as it was, in words for an operator."""
        ...

    def decide(self, rows: int, tokens: int | None = None) -> bool:
        """Whether a decode batch of `rows` requests, `tokens` of context in all, speculates.

        Called once a batch.
        """
        ...

    def observe(self, correct_drafts: Sequence[int]) -> None:
        """How many drafts of each row were accepted in a batch that speculated."""
        ...

    def details(self) -> dict[str, Any]:
        """What it decides by, for `/server_info`."""
        ...


@dataclass
class Threshold:
    """The fixed threshold. The first batch may be either; after that a change waits for `dwell`."""

    bounds: Bounds
    on: bool = True
    _stayed: int = field(init=False)
    _reason: str = "no batch yet"

    def __post_init__(self) -> None:
        self._stayed = self.bounds.dwell

    @property
    def reason(self) -> str:
        return self._reason

    def observe(self, correct_drafts: Sequence[int]) -> None:
        """Rows alone decide."""

    def details(self) -> dict[str, Any]:
        return {"off_from_requests": self.bounds.leave_at, "on_to_requests": self.bounds.enter_at}

    def decide(self, rows: int, tokens: int | None = None) -> bool:
        wanted = self._wanted(rows)
        if wanted != self.on and self._stayed >= self.bounds.dwell:
            self.on = wanted
            self._stayed = 0
        self._stayed = min(self._stayed + 1, self.bounds.dwell)
        self._reason = self._explain(rows, wanted)
        return self.on

    def _wanted(self, rows: int) -> bool:
        if self.on:
            return rows < self.bounds.leave_at
        return rows <= self.bounds.enter_at

    def _explain(self, rows: int, wanted: bool) -> str:
        bounds = self.bounds
        if wanted != self.on:
            return f"{rows} rows: waits until {bounds.dwell} batches after the last change"
        if self.on:
            return f"{rows} rows: fewer than {bounds.leave_at}"
        if rows >= bounds.leave_at:
            return f"{rows} rows: {bounds.leave_at} or more"
        return f"{rows} rows: more than {bounds.enter_at}, where speculation returns"
