"""Which policy serves a log best: no speculation, always, or off from a number of requests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .costs import Costs
from .log import Request
from .simulate import Outcome, simulate

NONE, ALWAYS = "none", "always"
# A mean latency this much lower is worth a draft; less may be the model of the simulation.
MARGIN = 0.03
TIE = 0.005  # policies this near to each other are as good
THRESHOLD = "--speculative-disable-batch-threshold"


@dataclass(frozen=True)
class Advice:
    """`best` is the policy of the lowest mean latency, `flags` its launch (empty: none).

    `uneven`: beyond `crossing` a cycle pays again, as where other load was beside the measurement.
    """

    pays: bool
    best: str
    threshold: int | None
    flags: str
    gain: float
    crossing: int | None
    uneven: bool
    kv_cost: float | None
    outcomes: dict[str, Outcome]

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        for outcome in told["outcomes"].values():
            outcome["rows_seconds"] = {
                str(rows): round(seconds, 3) for rows, seconds in outcome["rows_seconds"].items()
            }
        return told


def advise(log: Sequence[Request], costs: Costs) -> Advice:
    """Serve the log under every policy and choose; `gain` is the latency without over the best's.

    Without a measured KV room the two are taken to be alike; `kv_cost` is then None, and also where
    the room was fixed by a flag.
    """
    plain, fast = costs.kv_tokens
    outcomes = {
        NONE: simulate(log, costs, 0, plain if plain is not None else fast),
        ALWAYS: simulate(log, costs, None, fast),
    }
    for rows in thresholds(costs, outcomes[NONE].peak_rows):
        outcomes[str(rows)] = simulate(log, costs, rows, fast)
    context = _mean_context(log)
    cross = crossing(costs, context)
    best = _best(outcomes, cross)
    latency = outcomes[best].mean_latency  # 0 where not a single request fits
    gain = outcomes[NONE].mean_latency / latency if latency else 0.0
    pays = gain > 1 + MARGIN and outcomes[best].refused <= outcomes[NONE].refused
    threshold = int(best) if best != ALWAYS else None
    flags = costs.flags if pays else ""
    if pays and threshold is not None:
        flags += f" {THRESHOLD} {threshold}"
    return Advice(
        pays=pays,
        best=best if pays else NONE,
        threshold=threshold if pays else None,
        flags=flags,
        gain=gain,
        crossing=cross,
        uneven=cross is not None
        and any(costs.gain(n, context) >= 1 for n in range(cross, costs.table.most_rows + 1)),
        kv_cost=1 - fast / plain if plain and fast is not None and not costs.kv_fixed else None,
        outcomes=outcomes,
    )


def thresholds(costs: Costs, peak: int) -> list[int]:
    """Numbers of requests to try: powers of two, and the crossing, up to the peak of the log."""
    most = min(costs.most_requests, max(peak, 2))
    powers = {1 << power for power in range(1, most.bit_length() + 1)}
    cross = crossing(costs, 1.0)
    return sorted(n for n in powers | ({cross} if cross else set()) if 2 <= n <= most)


def crossing(costs: Costs, context: float) -> int | None:
    """The first number of requests at which a cycle does not pay, within what was measured."""
    for rows in range(1, costs.table.most_rows + 1):
        if costs.gain(rows, context) < 1:
            return rows
    return None


def _best(outcomes: Mapping[str, Outcome], cross: int | None) -> str:
    """The policy of least latency; of several as good, the one that is right for other traffic too.

    A threshold that brings nothing is one flag too many. Else the log does not tell thresholds
    apart, and the one nearest to where a cycle stops to pay is taken.
    """
    drafting = [name for name in outcomes if name != NONE]
    least = min(_cost(outcomes[name]) for name in drafting)
    good = [name for name in drafting if _cost(outcomes[name]) <= (1 + TIE) * least]
    if ALWAYS in good:
        return ALWAYS
    return min(good, key=lambda name: abs(int(name) - (cross or 0)))


def _cost(outcome: Outcome) -> float:
    return outcome.mean_latency + 1e6 * outcome.refused


def _mean_context(log: Sequence[Request]) -> float:
    """Over the time that requests decode, so long answers weigh more."""
    weight = sum(request.output_tokens for request in log)
    total = sum(r.output_tokens * (r.prompt_tokens + r.output_tokens / 2) for r in log)
    return total / weight
