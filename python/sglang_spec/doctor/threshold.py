"""`doctor threshold`: what a running server's batch threshold does, and from what figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from .served import NotSaid, part

# A step is decode and what passes to the next; a cycle the other four.
PHASES = ("decode", "decode_rest", "draft", "verify", "draft_extend", "cycle_rest")
WHY_NOT = (
    "has no batch threshold: start it with --speculative-disable-batch-threshold N or auto, by "
    "this project's SGLang"
)


@click.command("threshold")
@click.argument("url")
@click.option("--api-key", envvar="SGLANG_API_KEY", help="Of the server, if it asks for one.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def threshold(url: str, api_key: str | None, as_json: bool) -> None:
    """Say whether a server speculates now and why, from how many requests on it does not, and the
    step times that auto measured.

    Exit code 0: fine, 1: nothing can be said, 2: wrong usage.

    \b
    Example: sglang-spec doctor threshold http://127.0.0.1:30000
    """
    try:
        found = part(url, "batch_threshold", WHY_NOT, api_key)
    except NotSaid as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    lines = [line for one in found for line in told(one)]
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(lines))


def told(found: dict[str, Any]) -> Iterator[str]:
    """A server's answer as lines."""
    yield str(found["reason"])
    yield (
        f"{found['switches']} switches, {found['batches_on']} batches with speculation, "
        f"{found['batches_off']} without, {found['catch_ups']} catching-ups of the draft, "
        f"{found['catch_ups_kv_only']} of them by its KV alone"
    )
    yield (
        f"kept for the draft {found['ring_gb']} GB, graphs of the plain decode "
        f"{found['graph_gb']} GB"
    )
    off = found.get("off_from_requests")
    if not isinstance(off, dict):
        yield f"off from {off} requests, on again at {found.get('on_to_requests')} and fewer"
        return
    rates = ", ".join(f"{rate:.0%}" for rate in found["accept_rates"])
    yield f"accept length {found['accept_length']:.2f} at present, by position {rates}"
    yield from _refreshed(found)
    for table in found["milliseconds"]:
        since = off.get(str(table["context"]))
        crossing = (
            "no crossing measured" if since is None else f"does not pay from {since} requests"
        )
        yield f"{table['context']} tokens of context: {crossing}; milliseconds a step, and the gain"
        yield from _rows(table)


def _refreshed(found: dict[str, Any]) -> Iterator[str]:
    """How the table differs from that of the start; nothing of servers that measure only once."""
    times, ago = found.get("refreshes"), found.get("batches_since_refresh")
    if times is None:
        return
    if ago is None:
        yield "the table is as measured at start"
        return
    spans = (
        f"{kind} {min(ratios):.2f} to {max(ratios):.2f}"
        for kind, name in (("plain steps", "step_to_start"), ("cycles", "cycle_to_start"))
        if (ratios := [ratio for table in found["milliseconds"] for ratio in table[name]])
    )
    yield (
        f"the table was refreshed {times} times, last {ago} batches ago; times as long as at "
        f"start: {', '.join(spans)}"
    )


def _rows(table: dict[str, Any]) -> Iterator[str]:
    """The table of one context length, a line for each number of requests."""
    names = [name for name in PHASES if name in table]
    yield "".join(f"{name:>13}" for name in ("requests", *names, "gain"))
    for at, requests in enumerate(table["requests"]):
        figures = "".join(f"{table[name][at]:13.3f}" for name in names)
        yield f"{requests:13}{figures}{table['gain'][at]:13.2f}"
