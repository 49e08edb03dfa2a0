"""The `sglang-spec` command. Sub-commands are imported when they are asked for."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from . import process

# Name of each sub-command that has a package of its own: where it is.
ELSEWHERE = {
    "advise": "advise.command",
    "bench": "bench.command",
    "canary": "canary.command",
    "capture": "capture.command",
    "comm-bench": "comm.command",
    "contract": "contract.command",
    "doctor": "doctor.command",
    "report": "watch.command",
    "ready": "ready",
    "roll": "roll",
    "serve": "recipe.command",
    "smoke": "smoke.command",
    "top": "watch.command",
    "sweep": "sweep.command",
    "train": "train.command",
}
STARTS_SERVERS = ("demo", "serve", "capture", "comm-bench", "bench", "sweep", "canary")


class Commands(click.Group):
    """The commands of this file, and those of `ELSEWHERE` by the name of the function there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module = import_module(f".{ELSEWHERE[cmd_name]}", __package__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


def _tell_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """The first line of `doctor`: version, number of patches, patch set, files that differ."""
    if not asked or ctx.resilient_parsing:
        return
    provenance: Any = import_module(".hardening.provenance", __package__)
    click.echo(provenance.log_line(provenance.read()))
    ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Say which SGLang with which patches this is.",
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """EAGLE-3 speculative decoding on SGLang that production can trust.

    Data goes to stdout, talk to stderr. Exit code 0: fine, 1: a finding, 2: wrong usage.
    """
    if ctx.invoked_subcommand in STARTS_SERVERS:
        process.die_with_parent(signal.SIGTERM)
        _exit_on_sigterm()


@main.command()
@click.option("--output", type=click.Path(path_type=Path), help="Also write the figures here.")
@click.option("--prompts", default=20, show_default=True, help="Held-out prompts to decode.")
@click.option("--max-new-tokens", default=96, show_default=True, help="Tokens per prompt.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures instead of the table.")
def demo(output: Path | None, prompts: int, max_new_tokens: int, as_json: bool) -> None:
    """Start real servers with and without EAGLE3 on the embedded pair and compare them.

    \b
    Example: sglang-spec demo --output build/demo.json
    """
    from .demo import run

    sys.exit(run.main(run.Settings(prompts, max_new_tokens), output, as_json))


@main.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def models(argv: tuple[str, ...]) -> None:
    """Make, list and find the embedded model pairs (`sglang-spec models --help`)."""
    from .models.cli import main as models_main

    sys.exit(models_main(list(argv)))


def _exit_on_sigterm() -> None:
    """SIGTERM unwinds like Ctrl-C, so that context managers stop the servers they started."""

    def leave(signum: int, frame: object) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, leave)
