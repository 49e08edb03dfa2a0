"""What keeps adaptive step counts from thrashing: sticky slots, and probes that back off.

Upstream picks the slot of a batch anew at every step, so that a batch size that swings round a
slot's edge changes the steps every time; a slot at 0 steps probes drafting after every interval,
however often that failed; and under overlap the first result after a change, which comes from
before it, counts as the acceptance of the new steps.

Called by: `speculative/adaptive_spec_params.py` (patch `adaptive-without-thrash`). No torch, no
clock: every rank sees the same batches in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Update intervals between two probes, at most.
LONGEST_WAIT = 64
# Results that may be out; one under overlap.
MOST_OUT = 8


@dataclass
class SteadySlots:
    """Which slot a batch belongs to, when it is launched and when its result comes back.

    A larger slot is entered at once, and left when the batch is at three quarters of its edge.

    Attributes:
        slots: by the least batch size of each; they have `current_steps`.
    """

    slots: Mapping[int, Any]
    _current: int | None = None
    _out: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MOST_OUT))

    def launch(self, found: int, batch_size: int) -> int:
        """The steps of a batch that is about to run; `found` is the slot of its size alone."""
        current = self._current
        if current is None or found >= current or batch_size <= current * 3 // 4:
            current = self._current = found
        steps = int(self.slots[current].current_steps)
        self._out.append((current, steps))
        return steps

    def complete(self, found: int) -> Any:
        """The slot that the oldest result out tells of; None if its steps are not those of now.

        Without a launch before it, as where the policy is driven by itself, the slot `found`.
        """
        if not self._out:
            return self.slots[found]
        launched, steps = self._out.popleft()
        slot = self.slots[launched]
        return slot if slot.current_steps == steps else None


@dataclass
class ProbeBackoff:
    """When a slot at 0 steps may try to draft: after longer and longer waits while it fails."""

    _wait: int = 1
    _left: int = 1

    def due(self) -> bool:
        """Whether to probe; asked once an update interval at 0 steps."""
        self._left -= 1
        return self._left <= 0

    def settle(self, before: int, after: int) -> None:
        """An update decided `after` steps where `before` were used."""
        if before == 0:
            return
        self._wait = min(2 * self._wait, LONGEST_WAIT) if after == 0 else 1
        self._left = self._wait
