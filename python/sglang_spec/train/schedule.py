"""When training ends and how its learning rate gets there. Imports no torch.

Progress runs from 0 to 1 by steps or by training seconds, whichever is ahead. So a budget in
minutes ends with a learning rate that has come all the way down, on a fast GPU or a slow one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """A linear warm-up of `warmup` steps, then a cosine from `peak` to `peak * final`.

    Attributes:
        steps, seconds: where it ends; 0 is no limit. With `steps` alone it depends on no clock, and
            a second run takes bit for bit the same steps.
    """

    peak: float
    warmup: int
    final: float
    steps: int = 0
    seconds: float = 0.0

    def progress(self, step: int, elapsed: float) -> float:
        """0 at the start, 1 or more at the end; `elapsed` counts training seconds of all calls."""
        by_steps = step / self.steps if self.steps else 0.0
        by_time = elapsed / self.seconds if self.seconds else 0.0
        return max(by_steps, by_time)

    def rate(self, step: int, progress: float) -> float:
        """The learning rate of a step, counted from 0."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return self.peak * rise * (self.final + (1 - self.final) * fall)
