"""The `comm-bench` command."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ..canvas import PictureError
from ..finite import SECONDS, Finite
from . import bench, picture, record
from .team import TeamError

FILE = click.Path(path_type=Path, dir_okay=False, writable=True)
GIVEN = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("comm-bench")
@click.option("--ranks", type=click.IntRange(2), help="Ranks, one a GPU.  [default: every GPU]")
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="[default: cuda if there is one]"
)
@click.option("--rounds", default=8, show_default=True, type=click.IntRange(1), help="In turns.")
@click.option("--sizes", help="Bytes, comma between.  [default: 4 KiB to 2 MiB in powers of two]")
@click.option("--only", help="Candidates, comma between; plain is needed.  [default: all]")
@click.option("--set-up", type=click.Choice(["as-is", "no-peers"]), help="[default: both]")
@click.option(
    "--start-limit",
    default=150.0,
    show_default=True,
    type=SECONDS,
    help="Seconds to build kernels.",
)
@click.option(
    "--seconds", default=0.0, type=Finite(0), help="Stop after this time, keep what was measured."
)
@click.option("--output", type=FILE, help="Write all figures here (JSON).")
@click.option("--plan", type=FILE, help="Write the plan file here.")
@click.option("--picture", "png", type=FILE, help="Write a PNG here.")
@click.option("--from", "given", type=GIVEN, help="Draw these.")
def comm_bench(
    ranks: int | None,
    device: str | None,
    rounds: int,
    sizes: str | None,
    only: str | None,
    set_up: str | None,
    start_limit: float,
    seconds: float,
    output: Path | None,
    plan: Path | None,
    png: Path | None,
    given: Path | None,
) -> None:
    """Measure all-reduce at decode sizes and choose what --speculative-comm-plan should set.

    Measures what SGLang chooses by itself, NCCL in several environments, the custom and the
    PCIe-IPC all-reduce, in graphs and in turns; then all of it once more with peer access of NCCL
    off, to stand for a host without it. Needs no network and no server; the GPUs should be idle.

    \b
    Example: sglang-spec comm-bench --output comm.json --plan plan.json --picture comm.png
    """
    for option, path in (("--output", output), ("--plan", plan), ("--picture", png)):
        _make_place(option, path)
    if given is not None:
        results = _read(given)
    else:
        end = time.monotonic() + seconds if seconds else math.inf
        settings = replace(_settings(ranks, device, rounds, sizes, only, start_limit), end=end)
        if set_up is not None:
            settings = replace(settings, setups=(set_up,))
        try:
            results = bench.run(settings)
        except TeamError as error:
            raise click.ClickException(str(error)) from error
    if output is not None:
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if plan is not None and "as-is" in results["setups"]:
        core: Any = import_module("sglang_spec.hardening.comm.core")
        facts = core.Facts.from_dict(results["facts"])
        plan.write_text(record.measured(results, facts, str(plan)).dump(), encoding="utf-8")
    if png is not None:
        try:
            picture.draw(results, png)
        except PictureError as error:
            click.echo(f"no picture: {error}", err=True)
    click.echo("\n".join(_table(results)))
    partial = results.get("partial", {})
    for name, why in partial.items():
        was = "" if name in results["setups"] else " was not measured"
        click.echo(f"partial: set-up {name}{was}: {why}", err=True)
    if not all(why.startswith(bench.OVER) for why in partial.values()):
        sys.exit(1)


def _make_place(option: str, path: Path | None) -> None:
    """The folder of a file to come: minutes of measuring are not to end in its absence."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint=option) from error


def _read(path: Path) -> dict[str, Any]:
    """What an earlier run wrote; anything else is a usage error."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--from") from error
    keys = ("provenance", "facts", "setups")
    if not isinstance(content, dict) or any(type(content.get(key)) is not dict for key in keys):
        text = f"{path}: not a file of `comm-bench --output`, which has {', '.join(keys)}"
        raise click.BadParameter(text, param_hint="--from")
    return content


def _settings(
    ranks: int | None,
    device: str | None,
    rounds: int,
    sizes: str | None,
    only: str | None,
    start_limit: float,
) -> bench.Settings:
    gather: Any = import_module("sglang_spec.hardening.comm.gather")
    gpus = len(gather.gather().gpus)
    device = device or ("cuda" if gpus else "cpu")
    ranks = ranks or (gpus if device == "cuda" else 2)
    if device == "cuda" and not 2 <= ranks <= gpus:
        raise click.UsageError(f"--ranks: {ranks} ranks need as many GPUs, and two at least")
    try:
        chosen = tuple(int(size) for size in sizes.split(",")) if sizes else bench.DECODE_SIZES
    except ValueError as error:
        raise click.UsageError(f"--sizes {sizes}: numbers of bytes, comma between") from error
    if any(size % 4096 or size <= 0 for size in chosen):
        raise click.UsageError(f"--sizes {sizes}: multiples of 4096 bytes, a row each")
    names = tuple(only.split(",")) if only else ()
    if names and "plain" not in names:
        raise click.UsageError(f"--only {only}: plain is what the others are compared with")
    return bench.Settings(ranks, device, chosen, rounds, start_limit, names)


def _table(results: dict[str, Any]) -> list[str]:
    """Median microseconds: a line a size, a column a candidate, a mark at what is chosen."""
    text = []
    for name, setup in results["setups"].items():
        sizes = setup["microseconds"]
        columns = list(dict.fromkeys(one for cells in sizes.values() for one in cells))
        text += [f"{name}: plain SGLang takes {setup['plain']}"]
        wide = max(map(len, columns)) + 2
        text += ["  " + f"{'KiB':>7}" + "".join(f"{one:>{wide}}" for one in columns)]
        for size in sorted(sizes, key=int):
            picked = setup["chosen"]["by_size"].get(size)
            cells = [
                f"{sizes[size][one]['median']:.1f}{'*' if one == picked else ' '}"
                if one in sizes[size]
                else "- "
                for one in columns
            ]
            text.append(
                "  " + f"{int(size) // 1024:>7}" + "".join(f"{cell:>{wide}}" for cell in cells)
            )
        text += [f"  chosen / plain, 16 to 512 KiB: {setup['chosen']['ratio']:.3f}"]
        text += [f"  {one}: {why}" for one, why in setup["failed"].items()]
    return text


if __name__ == "__main__":
    sys.exit(comm_bench())
