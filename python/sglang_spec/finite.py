"""Numbers of the command line: within a range, and neither `nan` nor `inf`."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A `click.FloatRange` that also refuses `nan`, which no bound does, and `inf`."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """`value` as a finite float of the range; anything else is a usage error (exit code 2)."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SECONDS = Finite(0, min_open=True)
RATIO = Finite(0)
ACCEPT_LENGTH = Finite(1)
