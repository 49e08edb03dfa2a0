"""`doctor comm`: the communication plan of this machine, or of a recorded one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

FUSION = ["auto", "trtllm", "mnnvl", "cutedsl"]


def _size(name: str, default: int, what: str) -> Callable[[Any], Any]:
    return click.option(name, default=default, show_default=True, type=click.IntRange(1), help=what)


@click.command()
@click.option("--facts", "facts_file", type=click.Path(path_type=Path), help="Replay this record.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the facts here, for --facts.",
)
@click.option("--test-peers", is_flag=True, help="Write between GPUs and read back; uses the GPUs.")
@click.option("--tp-size", type=click.IntRange(1), help="Ranks.  [default: every GPU]")
@click.option("--nnodes", default=1, show_default=True, type=click.IntRange(1), help="Hosts.")
@click.option("--architecture", help="The target's, as in its config.json.")
@_size("--hidden-size", 7168, "Elements of a row.")
@_size("--num-draft-tokens", 4, "Rows a request in verify.")
@_size("--max-bs", 128, "Largest captured batch.")
@click.option("--fusion", type=click.Choice(FUSION), help="--flashinfer-allreduce-fusion-backend.")
@click.option("--disable-custom-all-reduce", is_flag=True, help="As given to the server.")
@click.option("--plan", "plan_file", type=click.Path(), help="auto, or a file of comm-bench.")
@click.option("--env", "settings", multiple=True, help="NAME=VALUE, in place of the environment's.")
@click.option("--json", "as_json", is_flag=True, help="Print facts and plan as JSON.")
def comm(
    facts_file: Path | None,
    save: Path | None,
    test_peers: bool,
    tp_size: int | None,
    nnodes: int,
    architecture: str | None,
    hidden_size: int,
    num_draft_tokens: int,
    max_bs: int,
    fusion: str | None,
    disable_custom_all_reduce: bool,
    plan_file: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say which library reduces which message, eager and in graphs, and why.

    Reads NVML, needs neither torch nor a GPU (but for --test-peers). Exit code 0: fine, 1: the
    launch would be refused, 2: wrong usage.

    \b
    Example: sglang-spec doctor comm --tp-size 8 --plan auto --test-peers
    """
    core: Any = import_module("sglang_spec.hardening.comm.core")
    if facts_file is not None and test_peers:
        raise click.UsageError("--test-peers uses this machine's GPUs, --facts another's record")
    if tp_size is not None and tp_size % nnodes:
        raise click.UsageError(f"--tp-size {tp_size}: not a multiple of --nnodes {nnodes}")
    try:
        facts = _facts(core, facts_file, test_peers)
        measured = core.Measured.load(plan_file) if plan_file not in (None, "auto") else None
    except (core.FactsError, core.MeasuredError) as error:
        raise click.UsageError(str(error)) from error
    if save is not None:
        try:
            save.write_text(facts.dump(), encoding="utf-8")
        except OSError as error:
            text = f"{save}: {error.strerror}; name a file in a folder that is there"
            raise click.BadParameter(text, param_hint="--save") from error
    launch = core.Settings(
        tp_size=tp_size or max(len(facts.gpus), 1),
        nnodes=nnodes,
        architecture=architecture,
        hidden_size=hidden_size,
        num_draft_tokens=num_draft_tokens,
        max_bs=max_bs,
        fusion_backend=fusion,
        disable_custom_all_reduce=disable_custom_all_reduce,
    )
    environment = _environment(settings, replay=facts_file is not None)
    plan = core.decide(facts, launch, environment, apply=plan_file == "auto", measured=measured)
    if as_json:
        content = {"facts": facts.to_dict(), "settings": launch.to_dict(), "plan": plan.to_dict()}
        click.echo(json.dumps(content, indent=2))
    else:
        table: Any = import_module("sglang_spec.hardening.comm.table")
        click.echo("\n".join(table.lines(plan)))
    sys.exit(1 if plan.refusals else 0)


def _facts(core: Any, path: Path | None, test_peers: bool) -> Any:
    if path is not None:
        return core.Facts.load(path)
    gather: Any = import_module("sglang_spec.hardening.comm.gather")
    return gather.gather(test_peers)


def _environment(settings: tuple[str, ...], replay: bool) -> dict[str, str]:
    """This shell's variables, none of them for a recorded machine, and those of --env."""
    environment = {} if replay else dict(os.environ)
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not (name and separator):
            raise click.UsageError(f"--env {setting}: NAME=VALUE is needed")
        environment[name] = value
    return environment
