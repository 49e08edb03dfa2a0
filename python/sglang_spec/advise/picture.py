"""The picture of an advice: how busy the log keeps the server, and what each policy makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..bench.curves import save
from .costs import Costs
from .policy import NONE, Advice


def draw(
    found: Advice, costs: Costs, context: float, target: Path, told: Mapping[str, Any]
) -> None:
    """Left: time by batch size, with the gain of a cycle. Right: mean latency by policy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = found.outcomes[NONE].rows_seconds
    total = sum(rows.values()) or 1.0
    left.bar(list(rows), [100 * seconds / total for seconds in rows.values()], color="#94a3b8",
             width=0.9)  # fmt: skip
    left.set_xlabel("requests in the batch, without speculation")
    left.set_ylabel("% of decode time")
    gains = left.twinx()
    most = max(costs.table.most_rows, *rows, 2)
    numbers = range(1, most + 1)
    gains.plot(numbers, [costs.gain(n, context) for n in numbers], color="#15803d")
    gains.axhline(1, color="#15803d", linewidth=0.7, linestyle=":")
    gains.set_ylabel(f"speed of a cycle over plain decode at {context:.0f} tokens", color="#15803d")
    names = list(found.outcomes)
    colours = ["#15803d" if name == found.best else "#94a3b8" for name in names]
    right.bar(names, [one.mean_latency for one in found.outcomes.values()], color=colours)
    right.set_xlabel("policy (a number: off from so many requests on)")
    right.set_ylabel("mean latency of a request, s")
    save(figure, target, told)
