"""Whether speculation is sick: healthy, degraded or unproven, with a reason.

Verify keeps the output right whatever the draft proposes, so a wrong capture, a wrong mask or lost
draft KV shows in nothing but the accept length. This is a pure function of what was accepted; it
decides nothing but what is shown. Imports without torch.

What is judged is the last `window` verify cycles, of `requests` requests at least, launched with
one number of draft steps: a switch of steps changes the accept length of a draft that is well.
Requests that are sampled hotly (`live`) are not told to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """`UNPROVEN`: the self-test was left out, and traffic has shown nothing bad."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class Rules:
    """When to call speculation degraded.

    Attributes:
        window: verify cycles of a request that are judged; a part of them is an eighth.
        requests: different requests that they must come from, so that one odd prompt is no alarm.
        nothing: accept length (bonus token included) at or under which nothing is accepted.
        fall: share of the reference under which the accept length has fallen.
        hour: seconds over which the reference is taken from traffic.
        hour_cycles: cycles that such a reference needs.
        stale: seconds after which a number of steps that is not launched any more says nothing.
    """

    window: int = 512
    requests: int = 4
    nothing: float = 1.02
    fall: float = 0.5
    hour: float = 3600.0
    hour_cycles: int = 4096
    stale: float = 60.0


PARTS = 8  # of a window; the judgement is renewed with each
MINUTES = 60  # pieces of the hour


@dataclass(frozen=True)
class Verdict:
    """`reason` is empty where the state is healthy."""

    state: State
    reason: str = ""

    @property
    def line(self) -> str:
        """For the log and for /health: `degraded: accept length 1.00 over …`."""
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)


@dataclass
class _Part:
    cycles: int = 0
    correct: int = 0
    requests: set[str] = field(default_factory=set)


@dataclass
class _Minute:
    begun: float
    cycles: int = 0
    correct: int = 0


class _Width:
    """What was accepted in cycles of one number of draft steps."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._parts: deque[_Part] = deque(maxlen=PARTS)
        self._open = _Part()
        self._minutes: deque[_Minute] = deque()

    def add(self, correct_drafts: Sequence[int], requests: Sequence[str], now: float) -> bool:
        """Whether a part of the window is full, so that it is worth to judge."""
        part = self._open
        part.cycles += len(correct_drafts)
        part.correct += sum(correct_drafts)
        if len(part.requests) < self._rules.requests:
            part.requests.update(requests)
        if part.cycles * PARTS < self._rules.window:
            return False
        self._parts.append(part)
        self._remember(part.cycles, part.correct, now)
        self._open = _Part()
        return True

    def length(self) -> tuple[float, int] | None:
        """Accept length of the window and its cycles; None while there is too little of it."""
        cycles = sum(part.cycles for part in self._parts)
        requests = set().union(*(part.requests for part in self._parts))
        if cycles < self._rules.window or len(requests) < self._rules.requests:
            return None
        return 1 + sum(part.correct for part in self._parts) / cycles, cycles

    def hour(self) -> float | None:
        """Accept length of the last hour without the window, None while there is too little."""
        cycles = sum(minute.cycles for minute in self._minutes)
        cycles -= sum(part.cycles for part in self._parts)
        correct = sum(minute.correct for minute in self._minutes)
        correct -= sum(part.correct for part in self._parts)
        return 1 + correct / cycles if cycles >= self._rules.hour_cycles else None

    def _remember(self, cycles: int, correct: int, now: float) -> None:
        span = self._rules.hour / MINUTES
        if not self._minutes or now - self._minutes[-1].begun >= span:
            self._minutes.append(_Minute(now))
        while now - self._minutes[0].begun > self._rules.hour:
            self._minutes.popleft()
        self._minutes[-1].cycles += cycles
        self._minutes[-1].correct += correct


class Alarm:
    """One rank's judgement of its traffic; what `observe` and `ranks` say raises and clears it.

    Attributes:
        verdict: as of the last of them.
    """

    def __init__(
        self,
        unproven: str = "",
        tested: float | None = None,
        rules: Rules | None = None,
    ) -> None:
        """
        Args:
            unproven: why the self-test was left out; empty if it was passed.
            tested: accept length that the self-test saw with the number of steps that is served;
                None where it saw several or none.
        """
        self._rules = rules or Rules()
        self._well = Verdict(State.UNPROVEN, unproven) if unproven else Verdict(State.HEALTHY)
        self._tested = tested
        self._widths: dict[int, _Width] = {}
        # By draft steps, so that one that is well does not speak for one that is sick.
        self._traffic: dict[int, str | None] = {}
        self._launched: dict[int, float] = {}
        self._unequal: str | None = None
        self.verdict = self._well

    def observe(
        self,
        num_steps: int,
        correct_drafts: Sequence[int],
        requests: Sequence[str],
        now: float,
    ) -> bool:
        """One verified batch; whether there is a new judgement, which may be the old one.

        Args:
            num_steps: draft steps it was launched with; 0 says nothing about the draft.
            correct_drafts: accepted drafts of each request.
            requests: their ids, in the same order.
            now: seconds of a steady clock.
        """
        if num_steps < 1 or not correct_drafts:
            return False
        self._launched[num_steps] = now
        width = self._widths.get(num_steps)
        if width is None:
            width = self._widths[num_steps] = _Width(self._rules)
        if not width.add(correct_drafts, requests, now) or (seen := width.length()) is None:
            return False
        self._traffic[num_steps] = self._judge(num_steps, *seen, width.hour())
        for steps, launched in self._launched.items():
            if now - launched > self._rules.stale:
                self._traffic[steps] = None
        self._conclude()
        return True

    def ranks(self, unequal: str | None) -> None:
        """What comparing the ranks' counts has found; None if they agree."""
        self._unequal = unequal
        self._conclude()

    def _conclude(self) -> None:
        reasons = [reason for reason in (self._unequal, *self._traffic.values()) if reason]
        self.verdict = Verdict(State.DEGRADED, "; ".join(reasons)) if reasons else self._well

    def _judge(self, num_steps: int, length: float, cycles: int, hour: float | None) -> str | None:
        seen = f"accept length {length:.2f} over {cycles} verify cycles of {num_steps} draft steps"
        if length <= self._rules.nothing:
            return f"{seen}: drafts are proposed and none is accepted"
        references = {"the self-test's": self._tested, "the last hour's": hour}
        for whose, reference in references.items():
            if reference is not None and length < self._rules.fall * reference:
                return f"{seen} is under {self._rules.fall:g} of {whose} {reference:.2f}"
        return None
