"""What serving costs on a machine: step times, acceptance and KV room, as they were measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bench import predict, runfile
from ..bench.side import ask

_ADVICE = "run `sglang-spec bench --mode none,static,auto` on this machine"


class CostsError(ValueError):
    """The measurements do not say what is needed; the text says what is missing."""


@dataclass(frozen=True)
class Costs:
    """`table` gives seconds of a plain step and of a cycle by rows and context (`CostTable`).

    `accept_length` tokens a cycle; `kv_tokens` room without and with speculation (None: unknown;
    `kv_fixed`: both servers were told how much, so that it says nothing of what a draft costs);
    `prefill` seconds a prompt token; `flags` launch what was measured, without a threshold.
    """

    table: Any
    accept_length: float
    kv_tokens: tuple[int | None, int | None]
    prefill: float
    most_requests: int
    flags: str
    source: Mapping[str, Any]
    kv_fixed: bool = False

    def gain(self, rows: int, context: float) -> float:
        """Speed of decoding with speculation over without, at a batch of so many rows."""
        step, cycle = (
            self.table.step_seconds(rows, context),
            self.table.cycle_seconds(rows, context),
        )
        return float(self.accept_length * step / cycle)


def of_run(path: Path) -> Costs:
    """From a run file of `bench` with the modes none and auto.

    Raises:
        CostsError, RunFileError: it does not hold them.
    """
    run = runfile.read(path)
    table = predict.cost_table(run)
    if table is None:
        raise CostsError(f"{path}: no side has a measured cost table; {_ADVICE}")
    by_side = {name: one["facts"] for name, one in run.sides.items()}
    measured = [e for e in run.measurements.values() if e.get("cycles") and not e["invalid"]]
    cycles = sum(entry["cycles"] for entry in measured)
    if not cycles:
        raise CostsError(f"{path}: no valid measurement with speculation; {_ADVICE}")
    correct = sum(entry["cycles"] * (entry["accept_length"] - 1) for entry in measured)
    plain = [one for one in by_side.values() if not one["algorithm"]]
    fast = next(one for one in by_side.values() if one["threshold"].get("milliseconds"))
    static = [one["flags"] for name, one in run.sides.items() if name == "static"]
    return Costs(
        table=table,
        accept_length=1 + correct / cycles,
        kv_tokens=(plain[0]["kv_tokens"] if plain else None, fast["kv_tokens"]),
        prefill=_prefill(run, plain),
        most_requests=int(fast["most_requests"] or table.most_rows),
        flags=static[0] if static else _flags(fast),
        source={"run": str(path), "pin": run.header["pin"], "host": run.header["host"],
                "checkpoints": run.header["checkpoints"], "partial": run.partial},
        kv_fixed=any("--max-total-tokens" in one["settings"].get("command", "")
                     for one in run.sides.values()),
    )  # fmt: skip


def of_server(url: str) -> Costs:
    """From a server that runs with `--speculative-disable-batch-threshold auto`.

    Raises:
        CostsError: it has no table. httpx.HTTPError: it does not answer.
    """
    facts = ask(url)
    table = predict.table_of(facts.threshold, facts.num_draft_tokens)
    if table is None:
        raise CostsError(
            f"{url} measured no costs; it has to run with "
            "--speculative-disable-batch-threshold auto"
        )
    return Costs(
        table=table,
        accept_length=float(facts.threshold["accept_length"]),
        kv_tokens=(None, facts.kv_tokens),
        prefill=0.0,
        most_requests=int(facts.most_requests or table.most_rows),
        flags=_flags(vars(facts)),
        source={"url": url, "provenance": dict(facts.provenance)},
    )


def _prefill(run: runfile.Run, plain: list[Any]) -> float:
    """Seconds a prompt token, from the first tokens of single requests without speculation."""
    found = [
        entry["mean_ttft_ms"] / 1e3 / int(entry["cell"].partition("x")[0])
        for entry in run.measurements.values()
        if entry["cell"].endswith("x1") and "mean_ttft_ms" in entry and not entry["cycles"]
    ]
    return min(found, default=0.0) if plain else 0.0


def _flags(facts: Mapping[str, Any]) -> str:
    words = {
        "algorithm": facts["algorithm"],
        "draft-model-path": (facts.get("provenance") or {}).get("draft"),
        "num-steps": facts["num_steps"],
        "eagle-topk": facts["topk"],
        "num-draft-tokens": facts["num_draft_tokens"],
    }
    given = {name: value for name, value in words.items() if value is not None}
    return " ".join(f"--speculative-{name} {shlex.quote(str(v))}" for name, v in given.items())
