"""The `capture` commands: dump, standardize, compare, fingerprint."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

FOLDER = click.Path(exists=True, path_type=Path)


@click.group()
def capture() -> None:
    """Dump, compare and standardize what the target hands to the draft.

    Data goes to stdout, talk to stderr. Exit code 0: fine, 1: a finding, 2: wrong usage.
    """


@capture.command(context_settings={"ignore_unknown_options": True})
@click.option("--target", type=FOLDER, required=True, help="Folder of the target.")
@click.option("--prompts", type=FOLDER, required=True, help="JSON lines: input_ids, text, ...")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The dump's folder.")
@click.option("--draft", type=FOLDER, help="Capture what this draft is given.")
@click.option("--loops", help="Capture at these loop indices, e.g. 3,31,59.")
@click.option("--all-layers", is_flag=True, help="Capture the embedding and every layer.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cut longer prompts.")
@click.option("--dtype", default="bfloat16", show_default=True, help="As of the server.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.argument("server", nargs=-1, type=click.UNPROCESSED)
def dump(
    target: Path,
    prompts: Path,
    output: Path,
    draft: Path | None,
    loops: str | None,
    all_layers: bool,
    max_tokens: int | None,
    dtype: str,
    as_json: bool,
    server: tuple[str, ...],
) -> None:
    """Run prompts through the real engine and write what it captures, position by position.

    What stands after `--` goes to the server (--tp-size 8, --quantization, ...). A run that was
    interrupted goes on where it stopped when it is started again with the same folder.

    \b
    Example: sglang-spec capture dump --target T --draft D --prompts p.jsonl --output d/ -- --tp 8
    """
    from ..server import ServerError
    from . import extract, send
    from .prompts import PromptError, read_prompts

    if sum([draft is not None, loops is not None, all_layers]) != 1:
        raise click.UsageError("give one of --draft, --loops, --all-layers")
    try:
        given = [int(loop) for loop in loops.split(",")] if loops else None
        chosen = extract.plan(target, draft, given)
        with prompts.open() as lines:
            total = sum(1 for _ in lines)
        with click.progressbar(length=total, label="samples", file=sys.stderr) as bar:
            progress = send.Progress(lambda made: bar.update(1))
            listed = read_prompts(prompts, target, max_tokens)
            made = extract.extract(chosen, listed, output, server, dtype, progress)
    except (send.ExtractError, PromptError, ServerError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    told = {"samples": made.samples, "tokens": made.tokens, "already_there": made.skipped}
    if as_json:
        click.echo(json.dumps(told))
    else:
        click.echo(f"{made.samples} samples, {made.tokens} tokens, {made.skipped} already there")


@capture.command()
@click.argument("a", type=FOLDER)
@click.argument("b", type=FOLDER)
@click.option("--all-layers", type=FOLDER, help="A dump of every layer, to name both sides by.")
@click.option("--labels", help="Names of A's slots, comma-separated, as A's trainer called them.")
@click.option("--slots", default=3, show_default=True, help="Slots of a dump without a manifest.")
@click.option("--tokens", default=0, help="List the norms and first values of so many tokens.")
@click.option("--limit", type=int, help="Stop after so many tokens.")
@click.option("--png", type=click.Path(path_type=Path), help="Draw the matrix into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def compare(
    a: Path,
    b: Path,
    all_layers: Path | None,
    labels: str | None,
    slots: int,
    tokens: int,
    limit: int | None,
    png: Path | None,
    as_json: bool,
) -> None:
    """Compare dump A with dump B, slot by slot. Exit code 1 if any slot differs.

    A or B may be a dump of this tool or a folder of another trainer's .safetensors, .ckpt or .pt
    files; nothing in them is run.

    \b
    Example: sglang-spec capture compare training/ inference/ --all-layers every/
    """
    from ..canvas import PictureError
    from . import show
    from .compare import compare as run
    from .dump import DumpError, open_dump
    from .picture import draw
    from .remedy import remedy
    from .tensorfile import TensorFileError

    try:
        dump_a = open_dump(a, tuple(labels.split(",")) if labels else None, slots)
        dump_b = open_dump(b, None, slots)
        reference = open_dump(all_layers) if all_layers else None
        found = run(dump_a, dump_b, reference, tokens, limit)
        if png is not None:
            draw(found, png)
    except (DumpError, TensorFileError, PictureError) as error:
        raise click.UsageError(str(error)) from error
    advice = remedy(found, dump_b)
    if as_json:
        click.echo(json.dumps(found.to_json() | {"remedy": advice}, indent=1))
    else:
        show.comparison(found, advice)
    sys.exit(0 if found.same else 1)


@capture.command()
@click.argument("dump", type=FOLDER)
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--layout",
    type=click.Choice(["sglang-spec", "specforge"]),
    default="sglang-spec",
    show_default=True,
    help="How the data is laid out; specforge writes .ckpt files and needs torch.",
)
@click.option("--order", help="Slots to write, in order, e.g. 2,1,0. Default: all, as they are.")
@click.option("--labels", help="Names of the slots of a dump without a manifest.")
@click.option("--slots", default=3, show_default=True, help="Slots of a dump without a manifest.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def standardize(
    dump: Path,
    output: Path,
    layout: str,
    order: str | None,
    labels: str | None,
    slots: int,
    as_json: bool,
) -> None:
    """Turn a dump into training data of one layout. Exit code 1 if samples were left out.

    \b
    Example: sglang-spec capture standardize dump/ data/ --layout specforge
    """
    from .dump import DumpError, open_dump
    from .standardize import standardize as run
    from .tensorfile import TensorFileError

    try:
        opened = open_dump(dump, tuple(labels.split(",")) if labels else None, slots)
        chosen = tuple(int(slot) for slot in order.split(",")) if order else None
        if chosen and not set(chosen) <= set(range(len(opened.labels))):
            raise click.BadParameter(f"the dump has slots 0 to {len(opened.labels) - 1}")
        with click.progressbar(length=len(opened), label="samples", file=sys.stderr) as bar:
            result = run(opened, output, layout, chosen, lambda done: bar.update(1))
    except (DumpError, TensorFileError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(vars(result)))
    else:
        click.echo(f"{result.written} samples, {result.tokens} tokens")
        for identity, reason in result.left_out:
            click.echo(f"left out {identity}: {reason}", err=True)
    sys.exit(1 if result.left_out else 0)


@capture.command()
@click.option("--dump", "training", type=FOLDER, required=True, help="What it was trained on.")
@click.option("--all-layers", type=FOLDER, required=True, help="The same samples, every layer.")
@click.option("--draft", type=FOLDER, required=True, help="The draft's folder; the file goes here.")
@click.option("--prompts", default=3, show_default=True, help="Samples to take.")
@click.option("--tokens", default=48, show_default=True, help="Tokens of each.")
@click.option("--labels", help="Names of the slots of a dump without a manifest.")
@click.option("--slots", default=3, show_default=True, help="Slots of a dump without a manifest.")
def fingerprint(
    training: Path,
    all_layers: Path,
    draft: Path,
    prompts: int,
    tokens: int,
    labels: str | None,
    slots: int,
) -> None:
    """Write what a draft was trained on beside it, for servers to check when they start.

    \b
    Example: sglang-spec capture fingerprint --dump training/ --all-layers every/ --draft D
    """
    from .dump import DumpError, open_dump
    from .fingerprint import write
    from .tensorfile import TensorFileError

    try:
        opened = open_dump(training, tuple(labels.split(",")) if labels else None, slots)
        path = write(opened, open_dump(all_layers), draft, prompts, tokens)
    except (DumpError, TensorFileError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    click.echo(str(path))
