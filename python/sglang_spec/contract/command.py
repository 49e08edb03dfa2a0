"""The `contract` command: a person's view of `sglang.srt.spec_hardening.contract`."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import click


@click.command()
@click.option("--target", required=True, help="Folder or cached hub id of the target.")
@click.option("--draft", required=True, help="Folder or cached hub id of the draft.")
@click.option("--tp", default=1, show_default=True, type=click.IntRange(1), help="--tp-size.")
@click.option("--pp", default=1, show_default=True, type=click.IntRange(1), help="--pp-size.")
@click.option("--context-length", type=click.IntRange(1), help="As the server will be given it.")
@click.option("--quantization", help="As the server will be given it.")
@click.option("--draft-quantization", help="--speculative-draft-model-quantization.")
@click.option(
    "--algorithm",
    default="EAGLE3",
    show_default=True,
    type=click.Choice(["EAGLE", "EAGLE3"], case_sensitive=False),
    help="--speculative-algorithm.",
)
@click.option("--rejection-sampling", is_flag=True, help="Rejection sampling will be on.")
@click.option("--allow-longer-context", is_flag=True, help="The draft may extrapolate positions.")
@click.option("--strict", is_flag=True, help="Warnings refuse too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def contract(
    target: str,
    draft: str,
    tp: int,
    pp: int,
    context_length: int | None,
    quantization: str | None,
    draft_quantization: str | None,
    algorithm: str,
    rejection_sampling: bool,
    allow_longer_context: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Check that a draft fits its target, and say which layer each slot of fc is given.

    Reads config.json and the headers of the weight files; needs neither a GPU nor torch (which only
    .bin weights ask for). Exit code 0: accepted, 1: refused, 2: wrong usage.

    \b
    Example: sglang-spec contract --target ./Kimi-K2.5 --draft ./kimi-k2.5-eagle3 --tp 8
    """
    core: Any = import_module("sglang_spec.hardening.contract")
    settings = core.Settings(
        algorithm=algorithm.upper(),
        tp_size=tp,
        pp_size=pp,
        context_length=context_length,
        quantization=quantization,
        draft_quantization=draft_quantization,
        rejection_sampling=rejection_sampling,
        allow_longer_context=allow_longer_context,
    )
    report = core.check_pair(target, draft, settings)
    report = report.strict() if strict else report
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    sys.exit(0 if report.accepted else 1)


def _print(report: Any) -> None:
    for slot in report.slots:
        click.echo(f"slot {slot.slot} takes {slot.takes} (loop index {slot.loop_index})")
    for note in report.notes:
        click.echo(f"note: {note}")
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo("accepted" if report.accepted else report.error_text(), err=not report.accepted)
