"""What a cycle consists of, whether its phases add up, and what it costs to watch them.

    python benchmark/phases.py [--shape embedded] [--rounds 20] [--requests 1 --requests 8]

One server, whose watch is switched off and on between measurements, in turn. Figures:

- phase_sum_error: at one request, the sum of all phases of a cycle over the time of a cycle from
  the first to the last token of a stream, minus one; the median and the worst of the rounds
- cycle_over_verify: at one request
- overhead: tokens per second lost by watching everything, by number of requests, with its interval

They are added to benchmark/results/phases.json with what they were measured on.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
from sglang_spec import host, process
from sglang_spec.bench import load, mode
from sglang_spec.bench.record import host as machine
from sglang_spec.bench.shape import shapes
from sglang_spec.bench.statistics import ratio
from sglang_spec.server import Launch, Server
from watch_switch import VARIABLE

RESULTS = Path(__file__).parent / "results/phases.json"
PROGRAM = Path(__file__).with_name("watch_switch.py")
FLAGS = ("--speculative-watch", "phases", "--enable-metrics", "--stream-interval", "1")


def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
    """Start `watch_switch.py` in place of the server that it runs."""
    assert command[1:3] == ["-m", "sglang.launch_server"], command
    return process.spawn([sys.executable, str(PROGRAM), *command[3:]], log, env)


class Bench:
    """Measures one server; `samples[requests][state]` are tokens per second by round."""

    def __init__(self, url: str, switch: Path, shape: Any, context: int, tokens: int) -> None:
        self._url, self._switch = url, switch
        self._shape, self._context, self._tokens = shape, context, tokens
        self.samples: dict[int, dict[str, dict[int, float]]] = defaultdict(
            lambda: {"on": {}, "off": {}}
        )
        self.sum_errors: list[float] = []

    def measure(self, requests: int, number: int) -> None:
        """One round: on and off, in an order that alternates."""
        for state in ("on", "off") if number % 2 else ("off", "on"):
            self._set(state)
            before = self._phases()
            asked = load.prompts(
                requests, self._context, self._shape.tokens, self._shape.first, seed=number
            )
            burst = load.burst(self._url, asked, self._tokens)
            self.samples[requests][state][number] = burst.tok_s
            if state == "on" and requests == 1:
                self.sum_errors.append(cycle(before, self._phases()) / outside(burst) - 1)

    def one_request(self) -> dict[str, Any]:
        """Mean times of the band of one request."""
        self._set("on")
        found: dict[str, Any] = self._phases()["1"]
        return found

    def _set(self, state: str) -> None:
        if state == "off":
            self._switch.touch()
        else:
            self._switch.unlink(missing_ok=True)
        # The switch takes effect with the next cycle; the others are warm after it.
        asked = load.prompts(1, 16, self._shape.tokens, self._shape.first)
        load.burst(self._url, asked, 24)

    def _phases(self) -> dict[str, Any]:
        state = httpx.get(f"{self._url}/server_info", timeout=60).json()["internal_states"][0]
        phases: dict[str, Any] = state.get("speculation", {}).get("phases", {})
        return phases


def cycle(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Seconds of a cycle of one request, by its phases, between two looks at them."""
    none = {"cycles": 0, "cycle_ms": 0.0}
    old, new = before.get("1", none), after["1"]
    sums = [band["cycles"] * band["cycle_ms"] / 1e3 for band in (old, new)]
    return float((sums[1] - sums[0]) / (new["cycles"] - old["cycles"]))


def outside(burst: load.Burst) -> float:
    """Seconds of a cycle of one request; its stream lasts for all of them."""
    assert burst.accept_length is not None
    return burst.window / (burst.tokens / burst.accept_length)


def overhead(sample: dict[str, dict[int, float]]) -> dict[str, Any]:
    """Per cent of tokens per second that are lost, with the bounds of 95 %."""
    lost, gained = ratio(sample["on"], sample["off"]), ratio(sample["off"], sample["on"])
    assert lost.low is not None and gained.low is not None, "two rounds at least"
    return {
        "percent": round(100 * (1 - lost.ratio), 3),
        "low": round(100 * (1 - 1 / gained.low), 3),
        "high": round(100 * (1 - lost.low), 3),
        "tok_s_on": round(statistics.mean(sample["on"].values()), 2),
        "tok_s_off": round(statistics.mean(sample["off"].values()), 2),
        "rounds": len(sample["on"]),
    }


def figures(bench: Bench) -> dict[str, Any]:
    alone = bench.one_request()
    size = sorted(map(abs, bench.sum_errors))
    return {
        "phase_sum_error": {
            "median": round(statistics.median(bench.sum_errors), 5),
            "worst": round(size[-1], 5),
        },
        "cycle_over_verify": round(alone["cycle_ms"] / alone["phases_ms"]["verify"], 4),
        "overhead": {str(count): overhead(one) for count, one in bench.samples.items()},
        "one_request": alone,
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--shape", "name", default="embedded", show_default=True, type=click.Choice(sorted(shapes(1)))
)
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(2))
@click.option("--requests", "counts", multiple=True, type=click.IntRange(1), default=(1, 8))
@click.option("--context", default=128, show_default=True, help="Tokens of a prompt.")
@click.option("--tokens", default=160, show_default=True, help="New tokens of a request.")
@click.option("--num-steps", default=3, show_default=True)
@click.option("--accept-length", default=2.5, show_default=True, help="Of shapes without weights.")
@click.option("--arg", "extra", multiple=True, help="A further argument of the server.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(
    name: str, rounds: int, counts: Sequence[int], context: int, tokens: int, num_steps: int,
    accept_length: float, extra: Sequence[str], results: Path,
) -> None:  # fmt: skip
    """Measure the phases of a cycle and what watching them costs."""
    shape = shapes(accept_length)[name]
    most = max(16, *counts)
    settings = mode.Settings(shape, None, num_steps, most_requests=most, extra=(*FLAGS, *extra))
    launch = mode.launch(mode.STATIC, settings)
    switch = Path("build/watch-off").resolve()
    switch.parent.mkdir(parents=True, exist_ok=True)
    switch.unlink(missing_ok=True)
    environment = {**launch.environment, VARIABLE: str(switch)}
    launch = Launch(launch.model, launch.speculation, launch.dtype, launch.arguments, environment)
    with Server(launch, Path("build/logs/phases.log"), spawn=spawn) as server:
        server.wait_ready(900)
        bench = Bench(server.url, switch, shape, context, tokens)
        busy = os.getloadavg()[0]
        for number in range(rounds):
            for count in counts:
                bench.measure(count, number)
            click.echo(f"phases: round {number + 1} of {rounds}", err=True)
        found = figures(bench)
        about = httpx.get(f"{server.url}/server_info", timeout=60).json()
    provenance = about["spec_hardening"]["provenance"]
    visit = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": host.device(),
        **found,
        "where": {
            **machine(),
            "load_average": round(busy, 1),
            "shape": name,
            "sglang": f"{provenance['version']}+spec.{provenance['spec']}",
            "patch_set": provenance["patch_set"][:12],
            "command": f"benchmark/phases.py {' '.join(sys.argv[1:])}".strip(),
        },
    }
    visits = json.loads(results.read_text())["visits"] if results.exists() else []
    # The latest visit of a device and a shape is the one that counts.
    visits = [
        old for old in visits if (old["device"], old["where"]["shape"]) != (visit["device"], name)
    ]
    results.write_text(json.dumps({"visits": [*visits, visit]}, indent=1) + "\n")
    print(json.dumps(visit))


if __name__ == "__main__":
    main()
