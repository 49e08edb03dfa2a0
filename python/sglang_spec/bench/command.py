"""The `bench` command: `bench` itself measures; `bench report` and `bench compare` read runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..finite import RATIO
from . import compare as comparison
from . import markdown, mask, mode, options, output, session, side, subject
from .options import Common
from .runfile import Run, RunFileError, read, require
from .runner import Plan

OUTPUT = Path("build/bench")


class Bench(click.Group):
    """A group whose first word may be left out: `bench --context …` is `bench run --context …`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


class Url(click.ParamType[tuple[str, str]]):
    """NAME=URL."""

    name = "name=url"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        name, _, url = str(value).partition("=")
        if not name or not url.startswith(("http://", "https://")):
            self.fail(f"{value!r} is not NAME=http://HOST:PORT", param, ctx)
        try:
            side.checked_url(url)
        except ValueError as error:
            self.fail(f"{value!r}: {error}; give NAME=http://HOST:PORT", param, ctx)
        return name, url.rstrip("/")


@click.group(cls=Bench, context_settings=options.CONTEXT)
def bench() -> None:
    """Speculation against none: speed, acceptance, equality, in one run with provenance.

    \b
    Example: sglang-spec bench --mode none,static --context 256 --concurrency 1,4
             sglang-spec bench compare before/run.jsonl after/run.jsonl --fail-under 0.95
    """


@bench.command("run", context_settings=options.CONTEXT)
@click.option(
    "--mode",
    "modes",
    default="none,static",
    show_default=True,
    help=f"Servers to start, the baseline first: {', '.join(mode.ALL)}.",
)
@click.option(
    "--url",
    "urls",
    multiple=True,
    type=Url(),
    help="A server that runs; no --mode then unless it is given.",
)
@click.option(
    "--upstream",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Python of a plain SGLang environment: one more side.",
)
@click.option("--num-steps", default=3, show_default=True, type=click.IntRange(1),
              help="Draft steps (topk 1).")  # fmt: skip
@click.option("--threshold", default=32, show_default=True, type=click.IntRange(1),
              help="N of the mode threshold.")  # fmt: skip
@options.common
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run_command(
    ctx: click.Context, modes: str, urls: Sequence[tuple[str, str]], upstream: Path | None,
    num_steps: int, threshold: int, common: Common, output: Path, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Start servers, measure them in turn, write run.jsonl, figures, a summary and a picture.

    A server of --url is asked with SGLANG_API_KEY if that is set, and its prefix cache is emptied.
    ARGUMENTS after -- go to every server started. Exit code 0: fine, 1: invalid or failed.

    \b
    Example: sglang-spec bench run --concurrency 1,4 --together 2 -- --log-level warning
    """
    named = ctx.get_parameter_source("modes") is not click.core.ParameterSource.DEFAULT
    names = [name for name in modes.split(",") if name] if named or not urls else []
    if arguments and not names and upstream is None:
        raise click.UsageError(
            f"{' '.join(mask.words(arguments))}: arguments go to servers that are started, and "
            "with --url alone there are none; leave them out, or give --mode"
        )
    tested = common.subject(running=bool(urls))
    cells = common.cells()
    most = subject.most_requests(cells)
    if mode.THRESHOLD in names and threshold > most:
        raise click.UsageError(f"--threshold {threshold} is above all loads; they reach {most}")
    try:
        made = subject.settings(tested, cells, threshold, arguments, common.dtype, common.together)
        made = replace(made, num_steps=num_steps)
        sides = [*subject.of_urls(urls), *subject.of_modes(names, made)]
        sides += [subject.of_upstream(upstream, made)] if upstream else []
        side.names(sides)
        if not sides:
            raise ValueError("nothing to measure: give --mode or --url")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    plan = Plan(
        tuple(sides), cells, common.rounds, common.together, tested.corpus, output / "logs",
        common.seed, common.stop_at_eos, common.seconds, tie_margin=common.tie_margin,
    )  # fmt: skip
    if common.dry_run:
        describe(plan, common.as_json)
        return
    run, code = _measured(plan, tested, common, output)
    sys.exit(code or shown(run, common.as_json))


def _measured(plan: Plan, tested: subject.Subject, common: Common, folder: Path) -> tuple[Run, int]:
    try:
        return session.measure(
            plan, subject.header(tested, settings(plan, common)), folder, common.resume, "bench"
        )
    except RunFileError as error:
        raise click.UsageError(str(error)) from error


def settings(plan: Plan, common: Common) -> dict[str, Any]:
    """The settings of a run file."""
    return {
        **common.settings(),
        "sides": [one.name for one in plan.sides],
        "launches": {one.name: one.settings() for one in plan.sides},
    }


def describe(plan: Plan, as_json: bool) -> None:
    """What `--dry-run` prints."""
    groups = [[one.name for one in group] for group in plan.groups()]
    told = {
        "groups": groups,
        "cells": [asdict(cell) for cell in plan.cells],
        "cost": plan.cost(),
        "sides": {one.name: one.settings() for one in plan.sides},
    }
    if as_json:
        click.echo(json.dumps(told, indent=1))
        return
    for number, group in enumerate(groups, 1):
        click.echo(f"group {number}: {', '.join(group)}")
    click.echo(f"cells: {', '.join(cell.key for cell in plan.cells)}; {plan.rounds} rounds")
    click.echo("cost: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in
                                    plan.cost().items()))  # fmt: skip
    for one in plan.sides:
        click.echo(f"{one.name}: {' '.join(one.settings().values())}")


def shown(run: Run, as_json: bool) -> int:
    """Print the figures of a run; 1 if anything in it is invalid or failed."""
    made = output.figures(run)
    if as_json:
        click.echo(json.dumps(made, indent=1))
    else:
        console = Console(highlight=False)
        for cell, sides in made["cells"].items():
            console.print(_table(cell, sides, made["baseline"]))
        for name, why in made["failed"].items():
            console.print(f"{name} failed: {why.splitlines()[-1]}", markup=False)
    invalid = any(not one["valid"] for sides in made["cells"].values() for one in sides.values())
    return int(invalid or bool(made["failed"]))


def _table(cell: str, sides: dict[str, Any], base: str) -> Table:
    table = Table(title=markdown.title(cell), title_justify="left")
    for name in ("side", "tok/s", f"against {base}", "accept length", "TTFT ms", "ITL ms", "equal"):
        table.add_column(name, overflow="fold")
    for name, one in sides.items():
        row = markdown.columns(name, one)
        table.add_row(*(row[key] for key in ("side", "tok/s", "speedup", "accept length", "TTFT ms",
                                             "ITL ms", "equal answers")),
                      style=None if one["valid"] else "bold red")  # fmt: skip
        for why in one["invalid"]:
            table.add_row("", f"invalid: {why}", style="bold red")
    return table


@bench.command("report")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write mode → concurrency → context → figures here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print figures as JSON.")
def report(file: Path, record: Path | None, as_json: bool) -> None:
    """Show a run.jsonl and write its summary and pictures anew.

    \b
    Example: sglang-spec bench report build/bench/run.jsonl --record concurrency.json
    """
    run = _read(file, *output.NEEDED)
    output.write(run, file.parent)
    if record is not None:
        made = output.by_mode(output.figures(run))
        output.replace(record, json.dumps(made, indent=1) + "\n")
    sys.exit(shown(run, as_json))


@bench.command("compare")
@click.argument("a", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("b", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--fail-under", default=0.0, type=RATIO, help="Exit 1 where B / A is below this, spread apart."
)
@click.option("--side", "only", multiple=True, help="Compare this side only (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print the ratios as JSON.")
def compare(a: Path, b: Path, fail_under: float, only: tuple[str, ...], as_json: bool) -> None:
    """The speed of run B over that of run A, and whether their speedups agree.

    Invalid measurements are not compared. A ratio below --fail-under is a finding unless its 95 %
    interval reaches 1. Exit code 0: fine, 1: a finding, or nothing could be compared.

    \b
    Example: sglang-spec bench compare before/run.jsonl after/run.jsonl --fail-under 0.95
    """
    first, second = (_read(path, "settings.sides", "settings.cells") for path in (a, b))
    pairs = [one for one in comparison.compare(first, second) if not only or one.side in only]
    failing = [one for one in pairs if one.fails(fail_under)]
    compared = [one for one in pairs if one.ratio is not None]
    others = comparison.differences(first, second)
    yes, no = comparison.agree(pairs)
    if as_json:
        told = {"passed": bool(compared) and not failing, "fail_under": fail_under,
                "pairs": [{**asdict(one), "fails": one in failing} for one in pairs],
                "speedups_agree": None if not (yes or no) else not no,
                "differences": others}  # fmt: skip
        click.echo(json.dumps(told, indent=1))
    else:
        table = Table(title="B over A, output tokens a second", title_justify="left")
        for name in ("side", "load", "ratio (95 %)", "speedup A, B", "accept length A, B"):
            table.add_column(name, overflow="fold")
        for one in pairs:
            lengths = ", ".join(
                markdown.DASH if n is None else f"{n:.2f}" for n in one.accept_lengths
            )
            text = markdown.interval(one.ratio) if one.ratio else f"not compared: {one.why}"
            style = "bold red" if one in failing else None if one.ratio else "dim"
            speedups = ", ".join(f"{n:.2f}" for n in one.speedups or ()) or markdown.DASH
            speedups += ": differ" if one in no else ""
            table.add_row(one.side, markdown.title(one.cell), text, speedups, lengths, style=style)
        Console(highlight=False).print(table)
        if yes or no:
            session.say("bench", f"{len(yes)} of {len(yes) + len(no)} speedups agree within their "
                        "spread (95 % for all of them together)")  # fmt: skip
        for text in others:
            session.say("bench", f"differs: {text}")
    if not compared:
        session.say("bench", "nothing could be compared")
    sys.exit(1 if failing or not compared else 0)


def _read(path: Path, *needed: str) -> Run:
    try:
        run = read(path)
        require(run, needed)
        return run
    except RunFileError as error:
        raise click.UsageError(str(error)) from error
