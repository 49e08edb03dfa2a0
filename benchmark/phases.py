"""What a cycle consists of, whether its phases add up, and what it costs to watch them.

    python benchmark/phases.py [--shape embedded] [--rounds 20] [--requests 1 --requests 8]

One server, whose watch is switched off and on between measurements in turn (`phase_bench`). Its
figures (`phase_figures`):

- phase_sum_error: at one request, the sum of all phases of a cycle over the time of a cycle from
  the first to the last token of a stream, minus one; the median and the worst of the rounds
- cycle_over_verify: at one request. On a GPU every 17th cycle is timed: a request of the 160 tokens
  that are the default has three or four of those, and --tokens 600 more
- overhead: speed lost by watching everything, by number of requests, with its interval. Speed is
  verify cycles a second: watching changes no token, so it is that of tokens too, without the noise
  of how many were accepted (shapes without weights draw that number anew in each cycle)

They are added to benchmark/results/phases.json with what they were measured on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
from phase_bench import PROGRAM, Bench
from phase_figures import RESULTS, figures, keep
from sglang_spec import host, process
from sglang_spec.bench import load, mode, room
from sglang_spec.bench.record import host as machine
from sglang_spec.bench.shape import shapes
from sglang_spec.server import Launch, Server, ServerError
from watch_switch import VARIABLE

MOST_FAILED = 3  # loads
FLAGS = ("--speculative-watch", "phases", "--enable-metrics", "--stream-interval", "1")


def spawn(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
    """Start `watch_switch.py` in place of the server that it runs."""
    assert command[1:3] == ["-m", "sglang.launch_server"], command
    return process.spawn([sys.executable, str(PROGRAM), *command[3:]], log, env)


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
@click.option("--tp-size", "tp", default=1, show_default=True, help="Ranks of the server.")
@click.option("--seconds", default=0.0, help="Stop after this time and keep what was measured.")
@click.option("--arg", "extra", multiple=True, help="A further argument of the server.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option(
    "--logs", type=click.Path(path_type=Path), default=Path("build/logs"), show_default=True
)
def main(
    name: str, rounds: int, counts: Sequence[int], context: int, tokens: int, num_steps: int,
    accept_length: float, backend: str | None, kv_tokens: int, tp: int, seconds: float,
    extra: Sequence[str], results: Path, logs: Path,
) -> None:  # fmt: skip
    """Measure the phases of a cycle and what watching them costs.

    The file is written anew after every round from the second on.
    """
    deadline = time.monotonic() + seconds if seconds else None
    shape = shapes(accept_length)[name]
    most = max(16, *counts)
    settings = mode.Settings(
        shape,
        backend,
        num_steps,
        most_requests=most,
        kv_tokens=kv_tokens,
        extra=(*FLAGS, *extra),
        tp=tp,
    )
    try:
        room.check(shape, tp)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
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


if __name__ == "__main__":
    main()
