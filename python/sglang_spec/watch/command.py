"""The `top` and `report` commands."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..finite import Finite
from .page import render
from .rates import Rates, between
from .snapshot import Snapshot, SnapshotError, take

KEY = click.option("--api-key", envvar="SGLANG_API_KEY", help="Or SGLANG_API_KEY; never printed.")


@click.command()
@click.argument("url")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("speculation.html"),
    show_default=True,
)
@KEY
def report(url: str, output: Path, api_key: str | None) -> None:
    """Write one HTML page on the speculation of a running server, to attach to a bug report.

    State and reason, phases of a cycle, acceptance by position, threshold, captured layers,
    communication, pin and patches. No prompt, no output and no key is in it, and it loads nothing.
    Exit code 0: fine, 1: the server is degraded or does not answer, 2: wrong usage.

    \b
    Example: sglang-spec report http://127.0.0.1:30000 --output report.html
    """
    snapshot = _take(url, api_key)
    try:
        output.write_text(render(snapshot))
    except OSError as error:
        text = f"{output}: {error.strerror}; name a file in a folder that is there"
        raise click.BadParameter(text, param_hint="--output") from error
    click.echo(f"{output}: {snapshot.speculation.get('state', 'not watched')}", err=True)
    sys.exit(int(snapshot.speculation.get("state") == "degraded"))


@click.command()
@click.argument("url")
@click.option("--interval", default=2.0, show_default=True, type=Finite(0.1), help="Seconds.")
@click.option("--count", default=0, help="Intervals to show.  [default: until Ctrl-C]")
@KEY
def top(url: str, interval: float, count: int, api_key: str | None) -> None:
    """Watch the speculation of a running server: state, acceptance, phases, time off.

    \b
    Example: sglang-spec top http://127.0.0.1:30000
    """
    console = Console()
    before = _take(url, api_key)
    shown = 0
    try:
        with Live(console=console, auto_refresh=False) as live:
            while not count or shown < count:
                time.sleep(interval)
                now = _take(url, api_key)
                live.update(table(now, between(before, now)), refresh=True)
                before, shown = now, shown + 1
    except KeyboardInterrupt:
        pass


def table(snapshot: Snapshot, rates: Rates) -> Table:
    """One interval as a table of two columns."""
    watched = snapshot.speculation
    made = Table(title=f"{snapshot.url}, last {rates.seconds:.1f} s", show_header=False)
    made.add_column(style="dim")
    made.add_column()
    state = str(watched.get("state", "not watched"))
    reason = watched.get("reason")
    made.add_row("state", f"{state}: {reason}" if reason else state)
    made.add_row("tokens/s", f"{rates.tokens_s:.1f} in {rates.cycles_s:.1f} verify cycles")
    made.add_row("accept length", _number(rates.accept_length, ".2f"))
    made.add_row("accept rate", _number(rates.accept_rate, ".1%"))
    if rates.positions:
        by = ", ".join(f"{position}: {rate:.1%}" for position, rate in rates.positions)
        made.add_row("by position", by)
    if rates.off is not None:
        made.add_row("time off", f"{rates.off:.1%}")
    if rates.cycle_ms is not None:
        made.add_row("cycle", f"{rates.cycle_ms:.2f} ms")
        for phase, ms in sorted(rates.phases.items(), key=lambda item: -item[1]):
            made.add_row(f"  {phase}", f"{ms:.3f} ms, {ms / rates.cycle_ms:.1%}")
    return made


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _take(url: str, api_key: str | None) -> Snapshot:
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("give http://HOST:PORT", param_hint="URL")
    try:
        return take(url, api_key)
    except SnapshotError as error:
        raise click.ClickException(str(error)) from error
