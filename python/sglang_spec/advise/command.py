"""The `advise` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import httpx
from rich.console import Console
from rich.table import Table

from ..bench.runfile import RunFileError
from ..finite import ACCEPT_LENGTH
from . import costs as measured
from . import log as traffic
from . import picture as drawing
from . import policy
from .costs import Costs, CostsError


@click.command()
@click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--costs",
    "run",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="run.jsonl of `sglang-spec bench --mode none,static,auto`.",
)
@click.option("--url", help="Or a server with --speculative-disable-batch-threshold auto.")
@click.option("--accept-length", type=ACCEPT_LENGTH, help="Instead of the measured one.")
@click.option(
    "--kv-tokens",
    nargs=2,
    type=int,
    metavar="PLAIN SPEC",
    help="KV room without and with speculation, instead of the measured.",
)
@click.option("--max-running-requests", type=click.IntRange(1), help="Instead of the measured.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="PNG or SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print the advice as JSON.")
def advise(
    log: Path, run: Path | None, url: str | None, accept_length: float | None,
    kv_tokens: tuple[int, int] | None, max_running_requests: int | None, picture: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Does speculation pay for this traffic, from how many requests on not, and what flags then?

    LOG: JSON lines or CSV with arrival (seconds or ISO time), prompt_tokens and output_tokens;
    Mooncake and Azure traces are read too. It is served by simulation with measured step times.

    \b
    Example: sglang-spec advise traffic.jsonl --costs build/bench/run.jsonl --picture advice.png
    """
    if (run is None) == (url is None):
        raise click.UsageError("give --costs FILE or --url URL: advice needs measured costs")
    if picture is not None and picture.suffix.lower() not in (".png", ".svg"):
        raise click.BadParameter(f"{picture}: name a PNG or an SVG", param_hint="--picture")
    try:
        requests = traffic.read(log)
        found = measured.of_run(run) if run is not None else measured.of_server(str(url))
    except (traffic.LogError, CostsError, RunFileError) as error:
        raise click.UsageError(str(error)) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise click.UsageError(f"{url}: {error!r}") from error
    given: dict[str, Any] = {"accept_length": accept_length, "kv_tokens": kv_tokens,
             "most_requests": max_running_requests}  # fmt: skip
    given["kv_fixed"] = False if kv_tokens else None
    known = Costs(**{**vars(found), **{k: v for k, v in given.items() if v is not None}})
    with Console(stderr=True).status("serving the log under each policy"):
        advice = policy.advise(requests, known)
    told = {**advice.to_json(), "log": str(log), "requests": len(requests),
            "accept_length": round(known.accept_length, 4), "kv_tokens": known.kv_tokens,
            "source": known.source}  # fmt: skip
    if picture is not None:
        context = sum(r.prompt_tokens for r in requests) / len(requests)
        try:
            drawing.draw(advice, known, context, picture, {"log": str(log), **known.source})
        except OSError as error:
            text = f"{picture}: {error.strerror}; name a file in a folder that can be written to"
            raise click.BadParameter(text, param_hint="--picture") from error
    if as_json:
        click.echo(json.dumps(told, indent=1))
    else:
        _show(advice, told)


def _show(advice: policy.Advice, told: dict[str, Any]) -> None:
    table = Table(title=f"{told['requests']} requests of {told['log']}", title_justify="left")
    for name in ("policy", "latency s", "p99 s", "ms a token", "waited", "speculates"):
        table.add_column(name)
    for name, one in advice.outcomes.items():
        label = name if name in (policy.NONE, policy.ALWAYS) else f"off from {name}"
        table.add_row(
            label, f"{one.mean_latency:.2f}", f"{one.p99_latency:.2f}",
            f"{1e3 * one.mean_token:.2f}", str(one.waited), f"{one.speculating:.0%}",
            style="green" if name == advice.best else None,
        )  # fmt: skip
    Console(highlight=False).print(table)
    for line in sentences(advice):
        click.echo(line)


def sentences(advice: policy.Advice) -> list[str]:
    """The advice in words; the last line is the flags."""
    if advice.uneven:
        crossing = (
            f"a cycle does not pay at {advice.crossing} requests and pays at more, so its costs "
            "were measured beside other load: measure again"
        )
    elif advice.crossing:
        crossing = f"a cycle stops to pay at {advice.crossing} requests"
    else:
        crossing = "a cycle pays at every batch size that was measured"
    room = (
        "what it costs in KV capacity was not measured (or the capacity was fixed by a flag)"
        if advice.kv_cost is None
        else f"it takes {advice.kv_cost:.1%} of the KV capacity"
    )
    if not advice.pays:
        return [
            f"speculation does not pay for this traffic: {advice.gain:.2f} times the speed of "
            f"none at best; {crossing}; {room}",
            "flags: none",
        ]
    return [
        f"speculation pays: without it the mean latency is {advice.gain:.2f} times as long; "
        f"{crossing}; {room}",
        f"flags: {advice.flags}",
    ]
