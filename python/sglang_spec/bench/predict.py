"""The speedup that measured phase times foretell, from the cost table of a server with `auto`.

A cycle of `accept_length` tokens takes `cycle_seconds`; a plain step gives one token in
`step_seconds`. What is measured beyond that (prefill, queueing, the tail) is not in it, so the
difference of the two shows how much of a load is decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .runfile import Run

_cost: Any = import_module("sglang_spec.hardening.threshold.cost")


def table_of(threshold: Mapping[str, Any], num_draft_tokens: int | None) -> Any | None:
    """The `CostTable` in a server's `batch_threshold`; None where it has none."""
    lines = threshold.get("milliseconds")
    if not lines or not num_draft_tokens:
        return None
    return _cost.CostTable.from_dict(
        {
            "num_draft_tokens": num_draft_tokens,
            "lines": [
                {
                    "context": line["context"],
                    "rows": line["requests"],
                    "seconds": {
                        phase: [value / 1e3 for value in line[phase]] for phase in _cost.PHASES
                    },
                }
                for line in lines
            ],
        }
    )


def cost_table(run: Run) -> Any | None:
    """The table of the first side of a run that measured one."""
    for side in run.sides.values():
        facts = side["facts"]
        table = table_of(facts.get("threshold") or {}, facts.get("num_draft_tokens"))
        if table is not None:
            return table
    return None


def speedup(
    table: Any | None, cell: str, accept_length: float | None, num_draft_tokens: int | None
) -> dict[str, Any] | None:
    """Predicted speedup and the shares of a cycle's phases, for a closed-loop cell.

    None without a table, without acceptance, for another number of draft tokens, or open loop
    (whose batch size is not known beforehand).
    """
    context, found, concurrency = cell.partition("x")
    if table is None or accept_length is None or not found:
        return None
    if table.num_draft_tokens != num_draft_tokens:
        return None
    rows, length = int(concurrency), float(context)
    step, cycle = table.step_seconds(rows, length), table.cycle_seconds(rows, length)
    return {
        "speedup": round(accept_length * step / cycle, 4),
        "step_ms": round(1e3 * step, 3),
        "cycle_ms": round(1e3 * cycle, 3),
        "phase_shares": {
            phase: round(table.phase_seconds(phase, rows, length) / cycle, 4)
            for phase in _cost.CYCLE
        },
        "extrapolated": rows > table.most_rows,
    }
