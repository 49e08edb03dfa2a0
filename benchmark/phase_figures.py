"""The figures of `phases.py`, from what a `Bench` measured, and the file that keeps them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from phase_bench import Bench
from sglang_spec.bench import output
from sglang_spec.bench.figures import MAIN
from sglang_spec.bench.statistics import median, ratio

RESULTS = Path(__file__).parent / "results/phases.json"


def overhead(sample: dict[str, dict[int, float]], tok_s: dict[str, list[float]]) -> dict[str, Any]:
    """Per cent of speed that is lost: the mean over rounds and their median, each with the bounds
    of 95 %. Where they differ, single rounds were disturbed."""
    lost, gained = ratio(sample["on"], sample["off"]), ratio(sample["off"], sample["on"])
    assert lost.low is not None and gained.low is not None, "two rounds at least"
    rounds = sorted(sample["on"].keys() & sample["off"].keys())
    middle = median([100 * (1 - sample["on"][one] / sample["off"][one]) for one in rounds])
    return {
        "percent": round(100 * (1 - lost.ratio), 3),
        "low": round(100 * (1 - 1 / gained.low), 3),
        "high": round(100 * (1 - lost.low), 3),
        "median": {
            name: None if value is None else round(value, 3)
            for name, value in zip(
                ("percent", "low", "high"), (middle.value, middle.low, middle.high), strict=True
            )
        },
        "tok_s_on": round(statistics.median(tok_s["on"]), 2),
        "tok_s_off": round(statistics.median(tok_s["off"]), 2),
        "rounds": len(rounds),
        "cycles_per_s": {
            state: [round(sample[state][one], 3) for one in rounds] for state in ("on", "off")
        },
    }


def figures(bench: Bench) -> dict[str, Any]:
    """What is there after two rounds or more; without one request, the costs only."""
    found: dict[str, Any] = {
        "phase_sum_error": None,
        "cycle_over_verify": None,
        "overhead": {
            str(count): overhead(one, bench.tok_s[count]) for count, one in bench.samples.items()
        },
    }
    if bench.cycles:
        mean = {phase: ms / bench.cycles for phase, ms in bench.alone.items()}
        found["phase_sum_error"] = {
            "median": round(statistics.median(bench.sum_errors), 5),
            "worst": round(max(map(abs, bench.sum_errors)), 5),
        }
        found["cycle_over_verify"] = round(sum(mean.values()) / mean["verify"], 4)
        found["one_request"] = {
            "cycles": bench.cycles,
            "cycle_ms": round(sum(mean.values()), 4),
            "phases_ms": {phase: round(ms, 4) for phase, ms in mean.items()},
        }
    return found


def keep(results: Path, visit: dict[str, Any]) -> None:
    """The latest visit of a device and a shape is the one that counts; the whole file or none.

    At the top stand the figures of the main shape on a GPU, or of the latest visit until there are
    any.
    """
    visits = json.loads(results.read_text())["visits"] if results.exists() else []
    place = visit["device"], visit["where"]["shape"]
    visits = [old for old in visits if (old["device"], old["where"]["shape"]) != place]
    visits.append(visit)
    main = [one for one in visits if (one["device"], one["where"]["shape"]) == ("cuda", MAIN)]
    top = (main or visits)[-1]
    content = {
        **{name: top[name] for name in ("phase_sum_error", "cycle_over_verify", "overhead")},
        "provenance": {"date": top["date"], "device": top["device"], **top["where"]},
        "visits": visits,
    }
    output.replace(results, json.dumps(content, indent=1) + "\n")
