"""Servers that differ in how they speculate, measured in turn; figures, provenance and a plot."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import httpx
from sglang_spec import process
from sglang_spec.bench import kernels, mode, picture, room
from sglang_spec.bench.load import LoadError
from sglang_spec.bench.record import Record, RecordError, read
from sglang_spec.bench.scene import Edge, Ramp, Return, Scene, Steady
from sglang_spec.bench.shape import Shape, shapes
from sglang_spec.bench.visit import OutOfTime, Plan, run
from sglang_spec.models import ModelError
from sglang_spec.server import ServerError

RESULTS = Path(__file__).parent / "results/threshold.json"
FEW = 16


class Cells(click.ParamType):
    """CONTEXT:REQUESTS[,REQUESTS…], for instance 1024:1,8,64."""

    name = "context:requests"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, tuple[int, ...]]:
        try:
            context, _, counts = str(value).partition(":")
            return int(context), tuple(int(count) for count in counts.split(","))
        except ValueError:
            self.fail(f"{value!r} is not CONTEXT:REQUESTS[,REQUESTS…]", param, ctx)


CELLS = Cells()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Speculation that never loses: measure it against servers without a threshold.

    \b
    Modes: none, static, threshold (off at N requests), auto, adaptive (upstream's own);
    static-decode and auto-decode with --speculative-verify-attention decode, triton only.
    Results are appended to a file, visit by visit; the figures in it are made anew each time.
    """


@main.command("run")
@click.option(
    "--shape",
    "shape_name",
    default="llama-8b",
    show_default=True,
    type=click.Choice(sorted(shapes(1))),
    help="Pair to serve.",
)
@click.option("--backend", help="Attention backend of all servers [default: the server's own].")
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(mode.KNOWN),
    default=mode.ALL,
    help="Modes to measure; give it again for more.  [default: all but …-decode]",
)
@click.option("--cells", multiple=True, type=CELLS, help="Steady loads, as CONTEXT:REQUESTS,…")
@click.option("--ramp", type=CELLS, help="A ramp 1 → REQUESTS → 1, as CONTEXT:REQUESTS.")
@click.option("--edge", type=CELLS, help="Load that swings between REQUESTS - 1 and REQUESTS.")
@click.option("--return", "come_back", type=CELLS, help="One request beside a crowd of REQUESTS.")
@click.option("--profile", type=CELLS, help="Look at the kernels of these steady loads.")
@click.option(
    "--profiled",
    multiple=True,
    default=(mode.STATIC,),
    show_default=True,
    type=click.Choice(mode.KNOWN),
    help="Modes to profile.",
)
@click.option("--rounds", default=4, show_default=True, help="Measurements of each, in turn.")
@click.option("--tokens", default=192, show_default=True, help="New tokens of each request.")
@click.option(
    "--few-tokens",
    default=0,
    help="The same for fewer than 16 together: a forced accept length is drawn for each cycle, "
    "and few cycles are told with much noise.  [default: --tokens]",
)
@click.option("--edge-tokens", default=2000, show_default=True, help="The same for --edge.")
@click.option("--return-tokens", default=600, show_default=True, help="The same for --return.")
@click.option("--num-steps", default=3, show_default=True, help="Draft steps (topk 1).")
@click.option(
    "--accept-length", default=2.5, show_default=True, help="Forced on the shape without weights."
)
@click.option("--threshold", default=32, show_default=True, help="N of the mode threshold.")
@click.option("--max-running-requests", default=128, show_default=True)
@click.option("--kv-tokens", default=0, help="KV cache of each server  [default: the server's].")
@click.option("--dtype", default="bfloat16", show_default=True)
@click.option("--tp-size", "tp", default=1, show_default=True, help="Ranks of each server.")
@click.option("--together", default=1, show_default=True, help="Servers up at a time.")
@click.option("--seconds", default=0.0, help="Stop after this time and keep what was measured.")
@click.option("--arg", "extra", multiple=True, help="A further argument of every server.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option("--plot", type=click.Path(path_type=Path), help="[default: RESULTS as .png]")
@click.option(
    "--logs", type=click.Path(path_type=Path), default=Path("build/logs"), show_default=True
)
@click.option("--dry-run", is_flag=True, help="Print the servers and scenes, start nothing.")
def run_command(
    shape_name: str, backend: str | None, modes: Sequence[str],
    cells: Sequence[tuple[int, tuple[int, ...]]], ramp: Any, edge: Any, come_back: Any,
    profile: Any, profiled: Sequence[str], rounds: int, tokens: int, few_tokens: int,
    edge_tokens: int, return_tokens: int, num_steps: int, accept_length: float, threshold: int,
    max_running_requests: int, kv_tokens: int, dtype: str, tp: int, together: int, seconds: float,
    extra: Sequence[str], results: Path, plot: Path | None, logs: Path, dry_run: bool,
) -> None:  # fmt: skip
    """Start servers and measure them.

    \b
    Example: python benchmark/threshold.py run --cells 1024:1,8,32,64,128 --backend triton
    """
    shape = shapes(accept_length)[shape_name]
    try:
        settings = mode.Settings(
            shape, backend, num_steps, threshold, max_running_requests, kv_tokens, dtype,
            tuple(extra), tp=tp,
        )  # fmt: skip
        scenes = _scenes(
            shape, cells, ramp, edge, come_back, tokens, few_tokens, edge_tokens, return_tokens
        )
        looked_at = _steady(shape, [profile] if profile else [], 4 * tokens)
        if not scenes and not looked_at:
            raise click.UsageError("nothing to measure: give --cells, --ramp, --edge, …")
        plan = Plan(
            tuple(dict.fromkeys(modes)), scenes, rounds, together, seconds, logs,
            tuple(looked_at), tuple(profiled),
        )  # fmt: skip
        if dry_run:
            _describe(plan, settings)
            return
        room.check(shape, tp, min(together, len(plan.modes)))
        record = Record(results, _told(settings, plan, tokens, few_tokens, accept_length))
    except (ModelError, RecordError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    process.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    code, why = 0, None
    try:
        run(plan, settings, record, _say)
    except OutOfTime as error:
        why = str(error)
    except (ServerError, LoadError, httpx.HTTPError) as error:
        code, why = 1, f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        code, why = 130, "interrupted"
    except SystemExit as leaving:
        code, why = int(leaving.code or 1), "terminated"
    record.end(why[:2000] if why else None)
    picture.draw(read(results), plot or results.with_suffix(".png"))
    if why:
        _say(f"partial: {why}")
    _say(f"results in {results}")
    sys.exit(code)


@main.command()
@click.option("--results", type=click.Path(path_type=Path, exists=True), default=RESULTS)
def show(results: Path) -> None:
    """Print the figures of a results file, and what grows with the number of requests."""
    content = json.loads(results.read_text())
    visits = content.pop("visits")
    print(json.dumps(content, indent=1))
    for visit in visits:
        for name, profiles in visit["profiles"].items():
            found = sorted(profiles.values(), key=lambda one: one["concurrency"])
            if len(found) > 1:
                few, many = found[0], found[-1]
                print(f"visit {visit['number']}, {name}: ms a step for each request more, "
                      f"{few['concurrency']} to {many['concurrency']}")  # fmt: skip
                for kernel, grows in list(kernels.growth(few, many).items())[:15]:
                    print(f"  {grows:9.5f}  {kernel}")


@main.command()
@click.option("--into", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True), required=True)
def merge(into: Path, files: Sequence[Path]) -> None:
    """Add the visits of FILES (from another machine) to a results file and draw it anew."""
    from sglang_spec.bench.record import write

    visits = read(into)
    for file in files:
        for visit in read(file):
            visits.append({**visit, "number": len(visits) + 1})
    write(into, visits)
    picture.draw(visits, into.with_suffix(".png"))


def _scenes(
    shape: Shape, cells: Sequence[tuple[int, tuple[int, ...]]], ramp: Any, edge: Any,
    come_back: Any, tokens: int, few_tokens: int, edge_tokens: int, return_tokens: int,
) -> tuple[Scene, ...]:  # fmt: skip
    scenes: list[Scene] = [*_steady(shape, cells, tokens, few_tokens)]
    for context, counts in [ramp] if ramp else []:
        scenes += [Ramp(shape, context, most, tokens) for most in counts]
    for context, counts in [edge] if edge else []:
        scenes += [Edge(shape, context, rows, edge_tokens) for rows in counts]
    for context, counts in [come_back] if come_back else []:
        scenes += [Return(shape, context, crowd, return_tokens) for crowd in counts]
    return tuple(scenes)


def _steady(
    shape: Shape, cells: Sequence[tuple[int, tuple[int, ...]]], tokens: int, few_tokens: int = 0
) -> list[Steady]:
    """Many requests first: their prompts are then in the cache for the fewer."""
    return [
        Steady(shape, context, count, few_tokens if few_tokens and count < FEW else tokens)
        for context, counts in cells
        for count in sorted(counts, reverse=True)
    ]


def _told(
    settings: mode.Settings, plan: Plan, tokens: int, few_tokens: int, accept_length: float
) -> dict[str, Any]:
    told = {**dataclasses.asdict(settings), "shape": settings.shape.name}
    forced = settings.shape.environment != {}
    return told | {
        "tokens": tokens,
        "few_tokens": few_tokens or tokens,
        "forced_accept_length": accept_length if forced else None,
        "rounds": plan.rounds,
        "together": plan.together,
        "modes": list(plan.modes),
        "argv": sys.argv[1:],
    }


def _describe(plan: Plan, settings: mode.Settings) -> None:
    for name in plan.modes:
        launch = mode.launch(name, settings)
        variables = "".join(f"{key}={value} " for key, value in launch.environment.items())
        print(f"{name}: {variables}{' '.join(launch.command(0))}")
    if settings.shape.weights is not None:
        weighs = settings.shape.weights.gigabytes(settings.tp)
        print(f"weights of a server: {weighs:.1f} GB on each of {settings.tp} ranks")
    print("\n".join(plan.describe()))


def _say(text: str) -> None:
    click.echo(f"threshold: {text}", err=True)


if __name__ == "__main__":
    main()
