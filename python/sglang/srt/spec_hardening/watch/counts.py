"""Drafts proposed and accepted by position, cycles by width, switches, time on and off.

Counters only, with the width that each cycle was launched with, so that a rate over any interval
is a quotient of two differences. A cycle adds one number a request, for the host's time is the
server's; what is shown is made of them when somebody asks. Imports without torch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Launched batches whose result is not there yet; one under overlap scheduling.
MOST_OUT = 8


class Step(NamedTuple):
    """The result of one decode batch.

    Attributes:
        num_steps: draft steps that it was launched with; 0: nothing was drafted.
        correct_drafts: drafts of each request that were accepted (the bonus token is none).
        plain: a decode in place of a verify (batch threshold); then `num_steps` is 0.
    """

    num_steps: int
    correct_drafts: Sequence[int]
    plain: bool = False


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
        accepted: verify cycles of a request, by number of draft steps and of accepted drafts.
        plain_cycles: decode steps of a request without a verify.
        switches: changes of the number of steps between two batches that follow each other.
        seconds: host time that decode batches were out, by whether anything was drafted.
        threshold: what a switch from or to a plain decode is counted as.
    """

    threshold: str = "batch_size"
    accepted: dict[int, dict[int, int]] = field(default_factory=dict)
    plain_cycles: int = 0
    switches: Counter[Change] = field(default_factory=Counter)
    seconds: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    _last: tuple[int, bool] | None = None
    _launched: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_OUT))
    _observed_at: float = 0.0

    @property
    def cycles(self) -> Counter[int]:
        """Verify cycles of a request by number of draft steps."""
        return Counter({steps: sum(seen.values()) for steps, seen in self.accepted.items()})

    @property
    def proposed(self) -> Counter[tuple[int, int]]:
        """Drafts by (number of draft steps, position from 1); of a tree, a position is a level,
        which counts once."""
        return Counter(
            {
                (steps, position): rows
                for steps, rows in self.cycles.items()
                for position in range(1, steps + 1)
            }
        )

    @property
    def correct(self) -> Counter[tuple[int, int]]:
        """Those of `proposed` that were accepted."""
        return Counter(
            {
                (steps, position): sum(
                    rows for count, rows in self.accepted[steps].items() if count >= position
                )
                for steps, position in self.proposed
            }
        )

    def launch(self, now: float) -> None:
        """A decode batch was launched at `now` (seconds, any steady clock)."""
        self._launched.append(now)

    def observe(self, step: Step, now: float) -> Change | None:
        """The oldest batch that was launched is back at `now`; the switch that it shows, if any."""
        steps, correct, plain = step
        if plain:
            self.plain_cycles += len(correct)
        else:
            seen = self.accepted.get(steps)
            if seen is None:
                seen = self.accepted[steps] = {}
            for count in correct:
                seen[count] = seen.get(count, 0) + 1
        begun = self._launched.popleft() if self._launched else now
        self.seconds[steps > 0] += now - max(begun, self._observed_at)
        self._observed_at = now
        before, after = self._last, (steps, plain)
        if before == after:
            return None
        self._last = after
        if before is None:
            return None
        change = Change(before[0], steps, self.threshold if before[1] or plain else "adaptive")
        self.switches[change] += 1
        return change

    def details(self) -> dict[str, Any]:
        """For /server_info; a rate is None where nothing was proposed."""
        correct = self.correct
        return {
            "accept_length": _mean_length(self),
            "verify_cycles": {str(steps): count for steps, count in sorted(self.cycles.items())},
            "plain_cycles": self.plain_cycles,
            "positions": [
                {
                    "num_steps": steps,
                    "position": position,
                    "proposed": proposed,
                    "correct": correct[steps, position],
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
