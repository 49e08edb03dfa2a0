"""The `sweep` command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from ..bench import command as bench
from ..bench import mode, options, output, session, subject
from ..bench.options import Common
from ..bench.runfile import Run, RunFileError, read
from ..bench.runner import Plan
from ..bench.side import Side
from . import choose, pareto, point
from .point import Point, PointError

OUTPUT = Path("build/sweep")


@click.command(context_settings=options.CONTEXT)
@click.option("--steps", type=options.INTS, default="1,3,5", show_default=True, help="Draft steps.")
@click.option("--topk", "topks", type=options.INTS, default="1", show_default=True)
@click.option(
    "--draft-tokens",
    "widths",
    type=options.INTS,
    default="",
    help="For trees (topk > 1); a chain has steps + 1.",
)
@click.option(
    "--threshold",
    "thresholds",
    default="none",
    show_default=True,
    help="none, auto or requests, comma-separated.",
)
@click.option("--comm-plan", "plans", multiple=True, help="Communication plan (repeatable).")
@click.option("--config-list", help="SpecForge's batch,steps,topk,draft … instead of the grid.")
@options.common
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sweep(
    steps: tuple[int, ...], topks: tuple[int, ...], widths: tuple[int, ...], thresholds: str,
    plans: tuple[str, ...], config_list: str | None, common: Common, output: Path,
    arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Measure a grid of speculative settings and name the best for each concurrency.

    Points that cannot work are left out with the reason; one that fails does not end the sweep.

    \b
    Example: sglang-spec sweep --steps 1,3,5 --concurrency 1,4,8 --together 2 --dry-run
             sglang-spec sweep --config-list "1,0,0,0 1,3,1,4 8,5,4,8" --resume
    """
    try:
        given = [point.threshold(text) for text in thresholds.split(",") if text.strip()]
    except PointError as error:
        raise click.UsageError(str(error)) from error
    points = point.grid(steps, topks, widths, given, plans)
    if config_list is not None:
        try:
            points, batches = point.of_tuples(config_list)
        except PointError as error:
            raise click.UsageError(str(error)) from error
        common = replace(common, concurrencies=tuple(batches))
    cells = common.cells()
    kept, pruned = point.prune(points, subject.most_requests(cells), _ranks(arguments))
    if not kept:
        raise click.UsageError("; ".join(["no point is left", *(why for _, why in pruned)]))
    tested = common.subject()
    made = subject.settings(tested, cells, 0, arguments, common.dtype, common.together)
    sides = [*subject.of_modes([mode.OFF], made), *(side(one, made) for one in kept)]
    plan = Plan(
        tuple(sides), cells, common.rounds, common.together, tested.corpus, output / "logs",
        common.seed, common.stop_at_eos, common.seconds, go_on=True,
        tie_margin=common.tie_margin,
    )  # fmt: skip
    if common.dry_run:
        try:
            _describe(plan, pruned, output, common.as_json)
        except RunFileError as error:
            raise click.UsageError(str(error)) from error
        return
    for name, why in pruned:
        session.say("sweep", f"left out {name}: {why}")
    header = subject.header(tested, {**bench.settings(plan, common), "pruned": dict(pruned)})
    try:
        run, code = session.measure(plan, header, output, common.resume, "sweep", write=write)
    except RunFileError as error:
        raise click.UsageError(str(error)) from error
    found = _show(run, common.as_json)
    sys.exit(code or found)


def side(one: Point, made: mode.Settings) -> Side:
    """The server of a point."""
    launch = mode.launch(
        mode.STATIC,
        replace(
            made,
            num_steps=one.num_steps,
            topk=one.topk,
            num_draft_tokens=one.num_draft_tokens,
            extra=(*made.extra, *one.arguments()),
        ),
    )
    return Side(one.name, launch, flags=subject.flags(launch))


def _ranks(arguments: Sequence[str]) -> int:
    """Ranks that reduce with each other, from the arguments for every server."""
    for flag, value in pairwise(arguments):
        if flag in ("--tp-size", "--tensor-parallel-size", "--tp") and value.isdigit():
            return int(value)
    return 1


def _describe(plan: Plan, pruned: list[tuple[str, str]], folder: Path, as_json: bool) -> None:
    cost: dict[str, Any] = {**plan.cost(), "seconds": seconds(plan, folder / output.RUN)}
    if as_json:
        told = {"points": [one.name for one in plan.sides], "pruned": dict(pruned),
                "groups": [[one.name for one in group] for group in plan.groups()],
                "cells": [cell.key for cell in plan.cells], "cost": cost}  # fmt: skip
        click.echo(json.dumps(told, indent=1))
        return
    for number, group in enumerate(plan.groups(), 1):
        click.echo(f"group {number}: {'; '.join(one.name for one in group)}")
    for name, why in pruned:
        click.echo(f"left out {name}: {why}")
    click.echo(f"cells: {', '.join(cell.key for cell in plan.cells)}; {plan.rounds} rounds")
    took = cost.pop("seconds")
    click.echo("cost: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in cost.items()))
    click.echo(
        f"about {took / 60:.0f} minutes by what {folder / output.RUN} measured"
        if took is not None
        else "how long that takes is known once a part was measured: run it with --seconds 120"
    )


def seconds(plan: Plan, path: Path) -> float | None:
    """Expected time of `plan`, from starts and measurements in an earlier run file; else None."""
    if not path.exists():
        return None
    run = read(path)
    launched = [one for one in run.sides.values() if "command" in one.get("settings", ())]
    ready = [one["ready_s"] for one in launched if one.get("ready_s") is not None]
    took = [one["duration"] for one in run.measurements.values() if "duration" in one]
    if not ready or not took:
        return None
    cost = plan.cost()
    # A measurement also has a pause of a second, and a warm-up now and then.
    each = sum(took) / len(took) + 1.5
    start = sum(ready) / len(ready)
    return float(round(cost["servers_started"] * start + cost["measurements"] * each))


def figures(run: Run) -> dict[str, Any]:
    """Those of `bench`, and the bands with their flags."""
    made = output.figures(run)
    flags = {name: one["flags"] for name, one in run.sides.items()}
    bands = choose.bands(made["cells"], flags, made["baseline"])
    return {
        **made,
        "pruned": run.header["settings"]["pruned"],
        "bands": [asdict(band) for band in bands],
        "launch": {str(k): line for k, line in choose.launches(bands, made["baseline"]).items()},
    }


def write(run: Run, folder: Path) -> list[Path]:
    """The files of `bench`, with the bands in them, and the Pareto picture."""
    files = output.write(run, folder)
    made = figures(run)
    output.replace(folder / "figures.json", json.dumps(made, indent=1) + "\n")
    summary = folder / "summary.md"
    output.replace(summary, summary.read_text() + "\n" + "\n".join(advice(made)) + "\n")
    for suffix in ("png", "svg"):
        target = folder / f"pareto.{suffix}"
        if pareto.draw(made, target):
            files.append(target)
    return files


def advice(made: dict[str, Any]) -> list[str]:
    """The flag line for each band, as Markdown."""
    lines = ["## What to use", ""]
    for band in made["bands"]:
        load = (
            f"{band['low']}" if band["low"] == band["high"] else f"{band['low']} to {band['high']}"
        )
        best = max(band["speedups"])
        flags = f"`{band['flags']}`" if band["flags"] else "no speculation"
        lines.append(f"- {load} requests of {band['context']} tokens: {flags}, {best:.2f} times"
                     + (f" (undecided, measure more rounds: {', '.join(band['undecided'])})"
                        if band["undecided"] else ""))  # fmt: skip
    for context, line in made["launch"].items():
        lines.append(f"- one launch for all loads of {context} tokens: "
                     + (f"`{line}`" if line else "no speculation"))  # fmt: skip
    return lines


def _show(run: Run, as_json: bool) -> int:
    made = figures(run)
    if as_json:
        click.echo(json.dumps(made, indent=1))
        invalid = any(not one["valid"] for c in made["cells"].values() for one in c.values())
        return int(invalid or bool(made["failed"]))
    code = bench.shown(run, as_json=False)
    click.echo("\n".join(advice(made)))
    return code
