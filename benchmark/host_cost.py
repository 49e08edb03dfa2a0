"""What our modules cost the host in a decode cycle, part by part, without a GPU.

    PYTHONPATH=test:python python benchmark/host_cost.py --label NAME [--rounds 40 | --count]

The thread of the scheduler sets the speed of a fast cycle, so its time is what counts. Replayed is
what a cycle calls (`host_replay`; --count starts a CPU server with the embedded pair and counts
these calls in it instead):

- watch: microseconds of a cycle by what is watched, each level with all before it, above those of
  the same calls with nothing watched. Times are taken as on a GPU, with events that cost nothing;
  how many there are of them stands beside it, and what they would add if each record took
  RECORD_US and each query or reading READ_US, which are guesses and not measured
- penalties: microseconds of a verify step, with the work of a CPU on a vocabulary of 8192 in them,
  which a GPU has not; and the operations that it launches

Processor time of the thread, of levels in turn, as the median and the quartiles of the rounds.
Added to benchmark/results/host_cost.json under the label, with what it was measured on.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from sglang_spec import host, process
from sglang_spec.bench import load, mode, output
from sglang_spec.bench.record import host as machine
from sglang_spec.bench.shape import shapes
from sglang_spec.server import Launch, Server

RESULTS = Path(__file__).parent / "results/host_cost.json"
ROWS = (1, 32)
CYCLES, STEPS = 400, 60  # of one measurement
VOCABULARY = 8192
RECORD_US, READ_US = 3.0, 1.5  # of a CUDA event; guesses


def in_turn(work: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds that each of `work` says it took, by round; who comes first goes round."""
    names, seconds = list(work), {name: list[float]() for name in work}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(work[name]())
    return seconds


def figures(microseconds: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(microseconds, n=4)
    return {"median": round(middle, 2), "low": round(low, 2), "high": round(high, 2)}


def above(levels: Mapping[str, Sequence[float]], base: str) -> dict[str, dict[str, float]]:
    """Each level less the base, round by round."""
    return {
        name: figures([one - other for one, other in zip(each, levels[base], strict=True)])
        for name, each in levels.items()
        if name != base
    }


def took(work: Callable[[], None]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def watch_cost(rounds: int) -> dict[str, Any]:
    from host_replay import LEVELS, Event, Watched

    watched, found = Watched(), {}
    for rows in ROWS:
        for level in LEVELS:
            watched.run(level, rows, CYCLES)
        work = {
            level: lambda level=level, rows=rows: took(lambda: watched.run(level, rows, CYCLES))
            for level in LEVELS
        }
        seconds = in_turn(work, rounds)
        levels = {name: [1e6 * one / CYCLES for one in each] for name, each in seconds.items()}
        Event.asked.clear()
        cycles = 17 * CYCLES
        watched.run(LEVELS[-1], rows, cycles)
        events = {name: round(count / cycles, 3) for name, count in Event.asked.items()}
        costs = above(levels, LEVELS[0])
        reads = events.get("query", 0) + events.get("elapsed_time", 0)
        added = RECORD_US * events.get("record", 0) + READ_US * reads
        found[str(rows)] = {
            "us_a_cycle": costs,
            "events_a_cycle": events,
            "reckoned_us_on_a_gpu": round(costs[LEVELS[-1]]["median"] + added, 1),
        }
    return found


def penalty_cost(rounds: int) -> dict[str, Any]:
    from host_replay import PENALTIES, Penalized, launches

    def step(rows: int, asked: dict[str, float]) -> float:
        steps = Penalized(rows, asked, VOCABULARY)
        steps.run(5)
        return took(lambda: steps.run(STEPS))

    found = {}
    for rows in ROWS:
        work = {
            name: lambda asked=asked, rows=rows: step(rows, asked)
            for name, asked in PENALTIES.items()
        }
        seconds = in_turn(work, rounds)
        found[str(rows)] = {
            name: {
                "us_a_step": figures([1e6 * one / STEPS for one in seconds[name]]),
                "launches": launches(rows, asked),
            }
            for name, asked in PENALTIES.items()
        }
    return found


def count_calls(folder: Path) -> dict[str, float]:
    """Calls in a cycle of a CPU server with the embedded pair, one request."""
    import host_count

    file = folder / "calls.json"
    shape = shapes(2.5)["embedded"]
    launch = mode.launch(mode.STATIC, mode.Settings(shape, None, 3, most_requests=4))
    environment = {**launch.environment, host_count.VARIABLE: str(file)}
    launch = Launch(launch.model, launch.speculation, launch.dtype, launch.arguments, environment)

    def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
        assert command[1:3] == ["-m", "sglang.launch_server"], command
        return process.spawn([sys.executable, host_count.__file__, *command[3:]], log, env)

    with Server(launch, folder / "count.log", spawn=spawn) as server:
        server.wait_ready(500)
        for number in range(2):  # the first has the self-test and its warm-up before it
            before = json.loads(file.read_text()) if number else {}
            load.burst(server.url, load.prompts(1, 32, shape.tokens, shape.first), 400)
    calls: dict[str, int] = json.loads(file.read_text())
    cycles = calls["observe"] - before["observe"]
    return {name: round((count - before[name]) / cycles, 3) for name, count in calls.items()}


def provenance(*arguments: str) -> dict[str, Any]:
    from sglang_spec.hardening import provenance  # type: ignore[attr-defined]

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": host.device(),
        **machine(),
        "load_average": round(os.getloadavg()[0], 1),
        "tree": provenance.log_line(provenance.of_this_tree()),
        "command": " ".join(("benchmark/host_cost.py", *arguments)),
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--label", required=True, help="What the tree is, such as `before`.")
@click.option("--rounds", default=40, show_default=True, type=click.IntRange(4))
@click.option("--count", is_flag=True, help="Count the calls in a CPU server instead.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(label: str, rounds: int, count: bool, results: Path) -> None:
    """Measure what our modules cost the host in a decode cycle."""
    content = json.loads(results.read_text()) if results.exists() else {}
    how = ("--count",) if count else ("--rounds", str(rounds))
    found: dict[str, Any] = {"provenance": provenance("--label", label, *how)}
    with tempfile.TemporaryDirectory() as folder:
        # As in a server: the front end reads what the ranks leave in files.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        if count:
            found["calls_a_cycle"] = count_calls(Path(folder))
        else:
            gc.disable()
            found |= {
                "rounds": rounds,
                "watch": watch_cost(rounds),
                "penalties": penalty_cost(rounds),
            }
    content[label] = found
    output.replace(results, json.dumps(content, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
