"""Drafts proposed and accepted by position, cycles by width, switches, time on and off.

Counters only, with the width that each cycle was launched with, so that a rate over any interval
is a quotient of two differences. Imports without torch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Launched batches whose result is not there yet; one under overlap scheduling.
MOST_OUT = 8


@dataclass(frozen=True)
class Step:
    """The result of one decode batch.

    Attributes:
        num_steps: draft steps that it was launched with; 0: nothing was drafted.
        correct_drafts: drafts of each request that were accepted (the bonus token is none).
        plain: a decode in place of a verify (batch threshold); then `num_steps` is 0.
    """

    num_steps: int
    correct_drafts: Sequence[int]
    plain: bool = False

    @cached_property
    def accepted_at(self) -> tuple[int, ...]:
        """Of how many requests the draft at each position, from 1 to `num_steps`, was accepted."""
        by_count = Counter(self.correct_drafts)
        return tuple(
            sum(rows for count, rows in by_count.items() if count >= position)
            for position in range(1, self.num_steps + 1)
        )


@dataclass(frozen=True)
class Change:
    """Steps before and after a switch, and who switched: `batch_size` or `cost` (the batch
    threshold, fixed or auto), `adaptive` (upstream's policy)."""

    before: int
    after: int
    reason: str


@dataclass
class Counts:
    """What one rank has seen since it serves.

    Attributes:
        cycles: verify cycles of a request by number of draft steps.
        plain_cycles: decode steps of a request without a verify.
        proposed, correct: drafts by (number of draft steps, position from 1). Of a tree, a
            position is a level, which counts once.
        switches: changes of the number of steps between two batches that follow each other.
        seconds: host time that decode batches were out, by whether anything was drafted.
        threshold: what a switch from or to a plain decode is counted as.
    """

    threshold: str = "batch_size"
    cycles: Counter[int] = field(default_factory=Counter)
    plain_cycles: int = 0
    proposed: Counter[tuple[int, int]] = field(default_factory=Counter)
    correct: Counter[tuple[int, int]] = field(default_factory=Counter)
    switches: Counter[Change] = field(default_factory=Counter)
    seconds: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    _last: Step | None = None
    _launched: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_OUT))
    _observed_at: float = 0.0

    def launch(self, now: float) -> None:
        """A decode batch was launched at `now` (seconds, any steady clock)."""
        self._launched.append(now)

    def observe(self, step: Step, now: float) -> Change | None:
        """The oldest batch that was launched is back at `now`; the switch that it shows, if any."""
        rows = len(step.correct_drafts)
        if step.plain:
            self.plain_cycles += rows
        else:
            self.cycles[step.num_steps] += rows
        for position, accepted in enumerate(step.accepted_at, start=1):
            key = (step.num_steps, position)
            self.proposed[key] += rows
            self.correct[key] += accepted
        begun = self._launched.popleft() if self._launched else now
        self.seconds[step.num_steps > 0] += now - max(begun, self._observed_at)
        self._observed_at = now
        before, self._last = self._last, step
        if before is None or (before.num_steps, before.plain) == (step.num_steps, step.plain):
            return None
        reason = self.threshold if before.plain or step.plain else "adaptive"
        change = Change(before.num_steps, step.num_steps, reason)
        self.switches[change] += 1
        return change

    def details(self) -> dict[str, Any]:
        """For /server_info; a rate is None where nothing was proposed."""
        return {
            "accept_length": _mean_length(self),
            "verify_cycles": {str(steps): count for steps, count in sorted(self.cycles.items())},
            "plain_cycles": self.plain_cycles,
            "positions": [
                {
                    "num_steps": steps,
                    "position": position,
                    "proposed": proposed,
                    "correct": self.correct[steps, position],
                }
                for (steps, position), proposed in sorted(self.proposed.items())
            ],
            "switches": [
                {"from": change.before, "to": change.after, "reason": change.reason, "count": count}
                for change, count in self.switches.items()
            ],
            "seconds_on": round(self.seconds[True], 3),
            "seconds_off": round(self.seconds[False], 3),
        }


def _mean_length(counts: Counts) -> float | None:
    """Tokens a verify cycle gave, the bonus token included, over all cycles that drafted."""
    cycles = sum(count for steps, count in counts.cycles.items() if steps)
    return round(1 + sum(counts.correct.values()) / cycles, 4) if cycles else None
