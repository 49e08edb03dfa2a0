"""The `canary` command."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..bench import command as bench
from ..bench import mask, options, output, session, subject
from ..bench.options import Common
from ..bench.runfile import Run, RunFileError
from ..bench.runner import Plan
from ..finite import RATIO
from . import spec, verdict

OUTPUT = Path("build/canary")
NEAR = 0.85  # of difflib; no option of SGLang is as near to one of ours


class Canary(click.Command):
    """Takes unknown options as flags of servers, but not what is nearly one of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = sorted({name for one in self.get_params(ctx) for name in one.opts})
        for word in args[: args.index("--")] if "--" in args else args:
            name = word.partition("=")[0]
            if not name.startswith("--") or name in own or any(map(str.isspace, name)):
                continue
            if near := difflib.get_close_matches(name, own, 3, NEAR):
                raise click.NoSuchOption(name, possibilities=near, ctx=ctx)
        return super().parse_args(ctx, args)


@click.command(cls=Canary, context_settings={**options.CONTEXT, "ignore_unknown_options": True})
@click.argument("a")
@click.argument("b")
@click.option("--num-steps", default=3, show_default=True, type=click.IntRange(1),
              help="Draft steps of both (topk 1).")  # fmt: skip
@click.option(
    "--fail-under", default=0.97, show_default=True, type=RATIO, help="Least speed of B over A."
)
@options.common
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def canary(
    a: str, b: str, num_steps: int, fail_under: float, common: Common, output: Path,
    arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """May B take the place of A? Tokens, acceptance, speed, KV capacity, memory: one verdict.

    A and B are each a URL, or "[PYTHON] [none] [--flag …]": another environment, no speculation,
    flags; "" is EAGLE3 as it is here. ARGUMENTS go to servers that are started. One of a URL is
    asked with SGLANG_API_KEY if that is set, and its prefix cache is emptied. Exit code 0: B may,
    1: it may not, 2: wrong usage.

    \b
    Example: sglang-spec canary "" "--log-level warning" --together 2
             sglang-spec canary none "" --fail-under 1.2 --concurrency 1,8
    """
    urls = [text.startswith(("http://", "https://")) for text in (a, b)]
    running = any(urls)
    if arguments and all(urls):
        raise click.UsageError(
            f"{' '.join(mask.words(arguments))}: arguments go to servers that are started, and A "
            "and B run already; leave them out (or is it an option, misspelt?)"
        )
    tested, cells = common.subject(running), common.cells()
    made = subject.settings(tested, cells, 0, arguments, common.dtype, common.together)
    made = replace(made, num_steps=num_steps)
    try:
        sides = (spec.side(verdict.A, a, made), spec.side(verdict.B, b, made))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    plan = Plan(
        sides, cells, common.rounds, common.together, tested.corpus, output / "logs",
        common.seed, common.stop_at_eos, common.seconds, tie_margin=common.tie_margin,
    )  # fmt: skip
    if common.dry_run:
        bench.describe(plan, common.as_json)
        return
    header = subject.header(tested, {**bench.settings(plan, common), "fail_under": fail_under})
    try:
        run, code = session.measure(plan, header, output, common.resume, "canary", write=write)
    except RunFileError as error:
        raise click.UsageError(str(error)) from error
    told = figures(run)
    click.echo(json.dumps(told, indent=1)) if common.as_json else _show(told)
    sys.exit(code or int(not told["passed"]))


def figures(run: Run) -> dict[str, Any]:
    """The verdict as plain data."""
    found = verdict.checks(run, run.header["settings"]["fail_under"])
    return {
        "passed": verdict.passed(found),
        "verdict": sentence(found),
        "checks": [asdict(check) for check in found],
        "partial": run.partial,
        "provenance": output.provenance(run),
    }


def sentence(found: list[verdict.Check]) -> str:
    """The verdict and its reasons."""
    against = [f"{check.name} ({check.detail})" for check in found if check.passed is False]
    if against:
        return f"B may not take the place of A: {'; '.join(against)}"
    open_ = [check.name for check in found if check.passed is None]
    unknown = f"; not checked: {', '.join(open_)}" if open_ else ""
    return f"B may take the place of A{unknown}"


def write(run: Run, folder: Path) -> list[Path]:
    """The files of `bench`, and `verdict.json`."""
    files = output.write(run, folder)
    told = figures(run)
    target = folder / "verdict.json"
    output.replace(target, json.dumps(told, indent=1) + "\n")
    summary = folder / "summary.md"
    output.replace(summary, summary.read_text() + f"\n## Verdict\n\n{told['verdict']}\n")
    return [*files, target]


def _show(told: dict[str, Any]) -> None:
    table = Table(title="A and B" + (" (partial)" if told["partial"] else ""))
    for name in ("check", "verdict", "what was seen"):
        table.add_column(name, overflow="fold")
    words = {True: ("ok", "green"), False: ("finding", "bold red"), None: ("not checked", "dim")}
    for check in told["checks"]:
        word, style = words[check["passed"]]
        table.add_row(check["name"], word, check["detail"], style=style)
    console = Console(highlight=False)
    console.print(table)
    console.print(told["verdict"], markup=False)
