"""What a cycle consists of, whether its phases add up, and what it costs to watch them.

    python benchmark/phases.py [--shape embedded] [--rounds 20] [--requests 1 --requests 8]

One server, whose watch is switched off and on between measurements, in turn. Figures:

- phase_sum_error: at one request, the sum of all phases of a cycle over the time of a cycle from
  the first to the last token of a stream, minus one; the median and the worst of the rounds
- cycle_over_verify: at one request
- overhead: speed lost by watching everything, by number of requests, with its interval. Speed is
  verify cycles a second: watching changes no token, so it is that of tokens too, without the noise
  of how many were accepted (shapes without weights draw that number anew in each cycle)

They are added to benchmark/results/phases.json with what they were measured on.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
from sglang_spec import host, process
from sglang_spec.bench import load, mode, output
from sglang_spec.bench.figures import MAIN
from sglang_spec.bench.record import host as machine
from sglang_spec.bench.shape import shapes
from sglang_spec.bench.statistics import median, ratio
from sglang_spec.server import Launch, Server, ServerError
from watch_switch import VARIABLE

RESULTS = Path(__file__).parent / "results/phases.json"
PROGRAM = Path(__file__).with_name("watch_switch.py")
MOST_FAILED = 3  # loads
FLAGS = ("--speculative-watch", "phases", "--enable-metrics", "--stream-interval", "1")


def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
    """Start `watch_switch.py` in place of the server that it runs."""
    assert command[1:3] == ["-m", "sglang.launch_server"], command
    return process.spawn([sys.executable, str(PROGRAM), *command[3:]], log, env)


class Bench:
    """Measures one server; `samples[requests][state]` are cycles per second by round.

    `tok_s` are its tokens per second likewise; `alone` has milliseconds of the cycles of one
    request by phase.
    """

    def __init__(self, url: str, switch: Path, shape: Any, context: int, tokens: int) -> None:
        self._url, self._switch = url, switch
        self._shape, self._context, self._tokens = shape, context, tokens
        self.samples: dict[int, dict[str, dict[int, float]]] = defaultdict(
            lambda: {"on": {}, "off": {}}
        )
        self.tok_s: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"on": [], "off": []})
        self.sum_errors: list[float] = []
        self.cycles = 0
        self.alone: dict[str, float] = defaultdict(float)

    def warm(self, requests: int) -> None:
        """Nothing is compiled or captured any more after it."""
        load.burst(self._url, self._prompts(requests, 0), self._tokens)

    def measure(self, requests: int, number: int) -> None:
        """One round: on and off, in an order that alternates."""
        for state in ("on", "off") if number % 2 else ("off", "on"):
            self._set(state)
            before = self._phases()
            burst = load.burst(self._url, self._prompts(requests, number), self._tokens)
            self.samples[requests][state][number] = 1 / outside(burst)
            self.tok_s[requests][state].append(burst.tok_s)
            after = self._phases()
            if (watched(after) > watched(before)) != (state == "on"):
                raise load.LoadError(f"{PROGRAM.name} does not switch: {state} changes nothing")
            if state == "on" and requests == 1:
                cycles, spent = between(before, after)
                self.cycles += cycles
                for phase, milliseconds in spent.items():
                    self.alone[phase] += milliseconds
                inside = sum(spent.values()) / cycles / 1e3
                self.sum_errors.append(inside / outside(burst) - 1)

    @property
    def complete(self) -> bool:
        """Whether there are two rounds of everything, from which figures can be made."""
        sizes = [len(both) for one in self.samples.values() for both in one.values()]
        return min(sizes, default=0) > 1

    def _prompts(self, requests: int, number: int) -> list[list[int]]:
        return load.prompts(
            requests, self._context, self._shape.tokens, self._shape.first, seed=number
        )

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


def watched(phases: dict[str, Any]) -> int:
    """Cycles of all bands."""
    return sum(band["cycles"] for band in phases.values())


def between(before: dict[str, Any], after: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """Cycles of one request between two looks, and milliseconds of all of them by phase."""
    none: dict[str, Any] = {"cycles": 0, "phases_ms": {}}
    old, new = before.get("1", none), after["1"]
    spent = {
        phase: new["cycles"] * ms - old["cycles"] * old["phases_ms"].get(phase, 0.0)
        for phase, ms in new["phases_ms"].items()
    }
    return new["cycles"] - old["cycles"], spent


def outside(burst: load.Burst) -> float:
    """Seconds of a cycle as the client sees it, while all requests are in it."""
    assert burst.cycles, "a server that speculates"
    return burst.window / burst.cycles


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
@click.option("--backend", help="Attention backend  [default: the server's own].")
@click.option("--kv-tokens", default=0, help="KV cache of the server  [default: the server's own].")
@click.option("--seconds", default=0.0, help="Stop after this time and keep what was measured.")
@click.option("--arg", "extra", multiple=True, help="A further argument of the server.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option(
    "--logs", type=click.Path(path_type=Path), default=Path("build/logs"), show_default=True
)
def main(
    name: str, rounds: int, counts: Sequence[int], context: int, tokens: int, num_steps: int,
    accept_length: float, backend: str | None, kv_tokens: int, seconds: float,
    extra: Sequence[str], results: Path, logs: Path,
) -> None:  # fmt: skip
    """Measure the phases of a cycle and what watching them costs.

    The file is written anew after every round from the second on.
    """
    deadline = time.monotonic() + seconds if seconds else None
    shape = shapes(accept_length)[name]
    most = max(16, *counts)
    settings = mode.Settings(
        shape, backend, num_steps, most_requests=most, kv_tokens=kv_tokens, extra=(*FLAGS, *extra)
    )
    launch = mode.launch(mode.STATIC, settings)
    logs.mkdir(parents=True, exist_ok=True)
    # The time in its name: two of this program may run at a time.
    switch = logs.resolve() / f"watch-off-{time.time_ns()}"
    environment = {**launch.environment, VARIABLE: str(switch)}
    launch = Launch(launch.model, launch.speculation, launch.dtype, launch.arguments, environment)
    process.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    visit: dict[str, Any] = {}
    failed: list[str] = []
    code, why = 0, "it is running, or was killed"
    try:
        with Server(launch, logs / f"phases-{name}.log", spawn=spawn) as server:
            server.wait_ready(seconds or 900)
            bench = Bench(server.url, switch, shape, context, tokens)
            visit = described(server, name)
            for count in counts:
                bench.warm(count)
            for number in range(rounds):
                if deadline is not None and time.monotonic() > deadline:
                    why = f"its time was over after {number} of {rounds} rounds"
                    break
                for count in counts:
                    try:
                        bench.measure(count, number)
                    except load.LoadError as error:
                        failed.append(f"round {number + 1}, {count} requests: {error}")
                        click.echo(f"phases: {failed[-1]}", err=True)
                        if len(failed) > MOST_FAILED:
                            raise
                if bench.complete:
                    keep(results, {**visit, **figures(bench), "partial": why})
                click.echo(f"phases: round {number + 1} of {rounds}", err=True)
            else:
                why = "; ".join(failed)
    except (ServerError, load.LoadError, httpx.HTTPError) as error:
        code, why = 1, f"{type(error).__name__}: {error}"[:2000]
    except KeyboardInterrupt:
        code, why = 130, "interrupted"
    except SystemExit as leaving:
        code, why = int(leaving.code or 1), "terminated"
    finally:
        switch.unlink(missing_ok=True)
    if visit and bench.complete:
        visit = {**visit, **figures(bench), "partial": why or None}
        keep(results, visit)
        print(json.dumps(visit))
    if why:
        click.echo(f"phases: partial: {why}", err=True)
    sys.exit(code)


def described(server: Server, name: str) -> dict[str, Any]:
    """When, on what and with what the server runs."""
    about = httpx.get(f"{server.url}/server_info", timeout=60).raise_for_status().json()
    provenance = about["spec_hardening"]["provenance"]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": host.device(),
        "where": {
            **machine(),
            "load_average": round(os.getloadavg()[0], 1),
            "shape": name,
            "sglang": f"{provenance['version']}+spec.{provenance['spec']}",
            "patch_set": provenance["patch_set"][:12],
            "command": f"benchmark/phases.py {' '.join(sys.argv[1:])}".strip(),
        },
    }


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


if __name__ == "__main__":
    main()
