"""`sglang-spec serve`: a recipe examined, shown as a command, and run."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from .. import process
from .arguments import shell
from .check import Outcome, examine
from .problem import RecipeError
from .read import load


@click.command()
@click.argument("recipe", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Examine and print; start nothing.")
@click.option("--facts", type=click.Path(path_type=Path), help="Replay this record (dry run).")
@click.option("--set", "changes", multiple=True, help="SECTION.KEY=VALUE over the recipe's.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON (dry run).")
@click.option("--port", default=30000, show_default=True, help="Without a recipe.")
@click.option("--num-steps", default=3, show_default=True, help="Without a recipe: draft steps.")
@click.pass_context
def serve(
    context: click.Context,
    recipe: Path | None,
    dry_run: bool,
    facts: Path | None,
    changes: tuple[str, ...],
    as_json: bool,
    port: int,
    num_steps: int,
) -> None:
    """Serve a recipe; without one, the embedded pair until Ctrl-C.

    The recipe is examined first: its keys, this machine (or the recorded one), the draft's contract
    where the models are here. The exact command is printed and then run in place of this process.
    Exit code 0: fine, 1: refused, 2: wrong usage.

    \b
    Example: sglang-spec serve recipes/kimi-k2.5-rtx-pro-6000.toml --dry-run --facts FACTS.json
    """
    if recipe is None:
        if dry_run or facts or changes or as_json:
            raise click.UsageError("give a recipe; recipes/embedded.toml is the embedded pair")
        from ..serve import keep_up

        sys.exit(keep_up(port, num_steps))
    given = [name for name in ("port", "num_steps") if _is_given(context, name)]
    if given:
        where = {"port": "listen.port", "num_steps": "draft.num_steps"}[given[0]]
        raise click.UsageError(f"with a recipe write --set {where}=VALUE")
    if not dry_run and (facts or as_json):
        raise click.UsageError("--facts and --json are for --dry-run")
    try:
        outcome = examine(load(recipe, changes), facts, dry_run)
    except RecipeError as error:
        _refuse(error, recipe, as_json)
    if as_json:
        click.echo(json.dumps(outcome.to_json(), indent=2))
    else:
        _print(outcome)
    if outcome.problems:
        sys.exit(1)
    if not dry_run:
        _become(outcome)


def _is_given(context: click.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source is not ParameterSource.DEFAULT


def _refuse(error: RecipeError, recipe: Path, as_json: bool) -> None:
    """Say what is wrong with a recipe that could not even be examined, and end with 1."""
    if as_json:
        problems = [one.to_json() for one in error.problems]
        told = {"recipe": str(recipe), "accepted": False, "problems": problems}
        click.echo(json.dumps(told, indent=2))
    else:
        for problem in error.problems:
            click.echo(f"refused: {problem}", err=True)
    sys.exit(1)


def _print(outcome: Outcome) -> None:
    """The command to stdout, everything else to stderr."""
    if outcome.plan is not None:
        table: Any = import_module("sglang_spec.hardening.comm.table")
        click.echo("\n".join(table.lines(outcome.plan)), err=True)
    if outcome.contract is not None:
        for slot in outcome.contract.slots:
            click.echo(f"slot {slot.slot} takes {slot.takes}", err=True)
        for warning in outcome.contract.warnings:
            click.echo(f"warning: {warning}", err=True)
    for note in outcome.notes:
        click.echo(f"note: {note}", err=True)
    for problem in outcome.problems:
        click.echo(f"refused: {problem}", err=True)
    click.echo(shell(outcome.command, outcome.environment))


def _become(outcome: Outcome) -> None:
    """Become the server: the process that a supervisor watches and signals is the server itself."""
    sys.stdout.flush()
    process.die_with_parent(0)  # the server outlives this shell, like one that was started by hand
    # A variable of the recipe wins over this shell's; those that any CPU engine gets do not.
    environment = {**outcome.environment, **os.environ, **outcome.recipe.extra.environment}
    os.execve(outcome.command[0], outcome.command, environment)
