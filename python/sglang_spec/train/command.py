"""The `train` commands: a draft from prompts to a checked folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..finite import Finite
from ..recipe.problem import RecipeError

ALL = ("prompts", "answers", "fit", "export", "evaluate")
_HELP = {
    "prompts": "Build the prompts from the text of installed packages.",
    "answers": "Let the target answer the prompts.",
    "fit": "Train the draft, once for each seed.",
    "export": "Write each draft as the folder that SGLang loads, with its fingerprint.",
    "evaluate": "Count each draft's accept length on held-out prompts; card and curves.",
    "all": "All of the above, in order.",
}
PATH = click.Path(path_type=Path)


class _Bar:
    """A line of progress on stderr: rewritten in place in a terminal, else one after another."""

    def __init__(self) -> None:
        self._live, self._width = sys.stderr.isatty(), 0

    def __call__(self, text: str) -> None:
        if not self._live:
            click.echo(f"train: {text}", err=True)
            return
        click.echo("\r" + text.ljust(self._width), nl=False, err=True)
        self._width = len(text)

    def end(self) -> None:
        if self._live and self._width:
            click.echo("", err=True)


@click.group()
def train() -> None:
    """Make an EAGLE3 draft for a target, from a recipe, in minutes on one GPU.

    Each stage goes on where it was stopped; Ctrl-C keeps what is done. Data goes to stdout, talk to
    stderr. Exit code 0: done, 1: stopped by the clock or refused, 2: wrong usage, 130: Ctrl-C or
    SIGTERM.

    \b
    Example: sglang-spec train all --recipe models/smollm2-135m-eagle3.toml
    """


def _shared(function: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--recipe", type=PATH, required=True, help="The recipe, a TOML file."),
        click.option("--output", type=PATH, help="Default: build/train/NAME of the recipe."),
        click.option("--set", "changes", multiple=True, help="SECTION.KEY=VALUE over the recipe."),
        click.option("--seed", "seeds", type=int, multiple=True, help="In place of fit.seeds."),
        click.option("--data", type=PATH, help="Train on a folder of `capture standardize`."),
        click.option(
            "--stop-after",
            type=Finite(0, min_open=True),
            help="Minutes of this call; the same command goes on later.",
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _command(name: str) -> click.Command:
    @click.command(name, help=_HELP[name])
    @_shared
    def command(
        recipe: Path,
        output: Path | None,
        changes: tuple[str, ...],
        seeds: tuple[int, ...],
        data: Path | None,
        stop_after: float | None,
        dry_run: bool,
        as_json: bool,
    ) -> None:
        stages = ALL if name == "all" else (name,)
        _run(stages, recipe, output, changes, seeds, data, stop_after or 0.0, dry_run, as_json)

    return command


for _name in _HELP:
    train.add_command(_command(_name))


def _run(
    stages: tuple[str, ...],
    path: Path,
    output: Path | None,
    changes: tuple[str, ...],
    seeds: tuple[int, ...],
    data: Path | None,
    minutes: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    from .recipe import load, with_seeds

    try:
        recipe = load(path, changes)
    except RecipeError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    recipe = with_seeds(recipe, seeds) if seeds else recipe
    folder = output or Path("build/train") / path.stem
    if data is not None:
        if set(stages) - {"fit", "export"} and stages != ALL:
            raise click.UsageError("--data takes the place of prompts and answers: fit, export")
        stages = tuple(stage for stage in stages if stage in ("fit", "export"))
    if dry_run:
        _plan(recipe, folder, stages, data, as_json)
        return
    _work(recipe, folder, stages, data, minutes, as_json)


def _work(
    recipe: Any, folder: Path, stages: tuple[str, ...], data: Path | None, minutes: float, raw: bool
) -> None:
    from safetensors import SafetensorError

    from ..canvas import PictureError
    from ..capture.dump import DumpError
    from ..capture.tensorfile import TensorFileError
    from ..models.cache import ModelError
    from ..server import ServerError
    from .answers import AnswersError
    from .checkpoint import CheckpointError
    from .data import DataError
    from .export import ExportError
    from .heldout import HeldOutError
    from .prompts import PromptsError
    from .run import Unfinished, Work
    from .stop import Stop
    from .target import TargetError

    known = (
        *(AnswersError, CheckpointError, DataError, DumpError, ExportError, HeldOutError),
        *(ModelError, PictureError, PromptsError, SafetensorError, ServerError, TargetError),
        *(TensorFileError, OSError),
    )
    bar = _Bar()
    with Stop(minutes) as stop:
        try:
            found = Work(recipe, folder, stop, bar, data).run(stages)
        except Unfinished as reason:
            bar.end()
            click.echo(f"stopped: {reason}; the same command goes on in {folder}", err=True)
            sys.exit(130 if stop.interrupted else 1)
        except known as error:
            bar.end()
            click.echo(f"error: {error}", err=True)
            sys.exit(1)
    bar.end()
    if raw:
        click.echo(json.dumps(found, indent=1))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    if told := found.get("prompts"):
        kinds = ", ".join(f"{count} {kind}" for kind, count in told["prompts"].items())
        click.echo(f"prompts: {kinds}; sha256 {told['sha256']}")
    if told := found.get("answers"):
        click.echo("answers: {answers}, {tokens} tokens, {seconds:.0f} s".format(**told))
    for seed, run in found.get("fit", {}).items():
        click.echo(f"fit: seed {seed}, {run['step']} steps, {run['seconds']:.0f} s")
    for seed, made in found.get("export", {}).items():
        click.echo(f"export: seed {seed}, {made['bytes'] / 1e6:.1f} MB, {made['draft']}")
    for name, one in found.get("evaluate", {}).get("spread", {}).items():
        click.echo(
            f"accept length, {name}: {one['mean']:.3f} ({one['least']:.3f} to {one['most']:.3f})"
        )


def _plan(recipe: Any, folder: Path, stages: tuple[str, ...], data: Path | None, raw: bool) -> None:
    from .plan import plan

    told = plan(recipe, folder, stages, data)
    if raw:
        click.echo(json.dumps(told, indent=1))
        return
    for stage, text in told["stages"].items():
        click.echo(f"{stage}: {text}")
    click.echo(f"into {told['output']}; at most {told['minutes']:g} minutes of budgets")
