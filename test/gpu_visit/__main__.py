"""`python -m gpu_visit run --out FOLDER` and `python -m gpu_visit show FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from sglang_spec.finite import SECONDS

from . import bring, machine, plan, schedule, summary, visit
from .work import ROOT

PLAN = ROOT / "test/gpu/visit.toml"
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
ENDED = {"done": 0, "partial": 130}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """As many tests and benchmarks as a visit to a GPU machine holds, the worthiest first."""


@main.command()
@click.option("--plan", "file", type=FILE, default=PLAN, help="[default: test/gpu/visit.toml]")
@click.option("--out", type=FOLDER, default=Path("build/visit"), show_default=True)
@click.option("--seconds", type=SECONDS, help="Of the whole visit.  [default: the plan's]")
@click.option(
    "--lanes-share", type=click.FloatRange(0, 1), help="1: tests alone.  [default: the plan's]"
)
@click.option("--only", multiple=True, help="A lane or benchmark; give it again for more.")
@click.option("--resume", type=FILE, help="Summary of a visit; what passed there is left out.")
@click.option(
    "--bring-back", type=FOLDER, help="At most 8 files for the way home, kept up to date."
)
@click.option("--gpus", type=click.IntRange(1), help="As if the host had so many, to see a plan.")
@click.option("--gpu-gb", type=SECONDS, default=150.0, show_default=True, help="Of each of --gpus.")
@click.option("--dry-run", is_flag=True, help="Print what would run where and when; start nothing.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON on stdout.")
def run(
    file: Path, out: Path, seconds: float | None, lanes_share: float | None,
    only: tuple[str, ...], resume: Path | None, bring_back: Path | None,
    gpus: int | None, gpu_gb: float, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make a visit. Exit status 1: something failed; 130 or 143: it was ended from outside.

    Lanes first, several on a GPU; then benchmarks alone. What a lane's tests do is written as they
    end, the summary whenever a job begins or ends, so nothing is lost if the machine goes.
    """
    try:
        chosen = plan.read(file).chosen(only)
        if lanes_share is not None:
            chosen = replace(chosen, lanes_share=lanes_share)
        before = visit.resumed(resume) if resume else {}
    except (plan.PlanError, summary.SummaryError) as error:
        raise click.UsageError(str(error)) from None
    host = machine.stand_in(gpus, gpu_gb) if gpus else machine.of_host()
    if not host.gpus:
        raise click.UsageError("this host has no NVIDIA GPU; --dry-run --gpus N shows a plan")
    whole = seconds or float(chosen.seconds)
    if dry_run:
        _foretell(chosen, host, whole, before)
        return
    asked: list[str] = []
    code = 130

    def leave(signum: int, _: Any) -> None:
        nonlocal code
        code = 128 + signum
        asked.append(f"ended by {signal.Signals(signum).name}")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    out, bring_back = out.resolve(), bring_back and bring_back.resolve()
    os.chdir(ROOT)  # where the plan's paths begin
    made = visit.Visit(
        chosen, host, out, whole, before, bring_back,
        lambda line: click.echo(f"visit: {line}", err=True), lambda: asked[0] if asked else "",
    )  # fmt: skip
    content = made.run()
    click.echo(visit.printed(content, as_json))
    failed = any(job["state"] == "failed" for job in content["jobs"])
    sys.exit(code if asked else int(failed))


@main.command()
@click.argument("out", type=FOLDER)
@click.option("--wait", type=SECONDS, default=0.001, help="Seconds to wait for its end.")
@click.option("--bring-back", type=FOLDER, help="Leave there what came of it so far.")
@click.option("--json", "as_json", is_flag=True)
def show(out: Path, wait: float, bring_back: Path | None, as_json: bool) -> None:
    """What a visit has reached, also one that still runs in the background."""
    until = time.monotonic() + wait
    while True:
        try:
            content = summary.read(out / summary.FILE)
        except summary.SummaryError as error:
            if time.monotonic() >= until:
                raise click.UsageError(str(error)) from None
            content = {"state": "running"}
        if content["state"] != "running" or time.monotonic() >= until:
            break
        time.sleep(1)
    if bring_back is not None:
        bring.light(out, bring_back, content)
        bring.logs(out, bring_back, ROOT / "build/logs")
    click.echo(visit.printed(content, as_json))


def _foretell(
    chosen: plan.Plan, host: machine.Machine, seconds: float, before: dict[str, tuple[str, ...]]
) -> None:
    done = {name for name, tests in before.items() if "*" in tests}
    left = max(1.0, seconds - visit.CLOSING)
    made = schedule.Schedule.of(chosen, host, left, done)
    starts = schedule.foreseen(made)
    skipped = {job.name: schedule.hindrance(job, host) for job in chosen.jobs}
    skipped |= dict.fromkeys(done, "passed before")
    late = {job.name: "not reached, if all others take all of their time" for job in made.waiting}
    told = {name: why for name, why in {**skipped, **late}.items() if why}
    for line in schedule.table(starts, told):
        click.echo(line)


if __name__ == "__main__":
    main()
