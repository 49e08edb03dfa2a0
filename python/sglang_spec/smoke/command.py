"""The `smoke` command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from ..bench.side import checked_url
from ..finite import ACCEPT_LENGTH, RATIO, SECONDS
from .outcome import Report, Row, Verdict
from .run import CHECKS, Check, rows
from .target import PROMPTS, QUESTIONS, Settings, Target


@click.command()
@click.argument("url")
@click.option("--baseline", metavar="URL", help="A server without speculation to compare with.")
@click.option("--question", "questions", multiple=True, help="Ask this instead (repeatable).")
@click.option("--prompt", "prompts", multiple=True, help="Decode this instead (repeatable).")
@click.option("--max-new-tokens", default=64, show_default=True, type=click.IntRange(8))
@click.option(
    "--min-accept-length",
    default=1.2,
    show_default=True,
    type=ACCEPT_LENGTH,
    help="Below it acceptance is a finding (bonus token included).",
)
@click.option(
    "--tie-margin", default=0.25, show_default=True, type=RATIO, help="Log-probability of a tie."
)
@click.option("--parallel", default=8, show_default=True, type=click.IntRange(1))
@click.option("--long-tokens", type=click.IntRange(16), help="Length of the long prompt.")
@click.option(
    "--timeout", default=120.0, show_default=True, type=SECONDS, help="Seconds for one request."
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([check.name for check in CHECKS]),
    metavar="CHECK",
    help=f"Run this check only (repeatable): {', '.join(check.name for check in CHECKS)}.",
)
@click.option("--no-speculation", is_flag=True, help="The server is meant to run without it.")
@click.option("--api-key", envvar="SGLANG_API_KEY", help="Or SGLANG_API_KEY; never printed.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def smoke(
    url: str,
    baseline: str | None,
    questions: tuple[str, ...],
    prompts: tuple[str, ...],
    max_new_tokens: int,
    min_accept_length: float,
    tie_margin: float,
    parallel: int,
    long_tokens: int | None,
    timeout: float,
    only: tuple[str, ...],
    no_speculation: bool,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Ask a running server everything that shows whether speculation works and is right.

    Health, real completions, accept length, equality with a plain decode, a batch, a long prompt,
    a stream, an abort, structured output. Exit code 0: fine, 1: a finding, 2: wrong usage.

    \b
    Example: sglang-spec smoke http://127.0.0.1:30000
    """
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter(f"{url!r}: give http://HOST:PORT", param_hint="URL")
    for name, given in (("URL", url), ("--baseline", baseline)):
        try:
            checked_url(given or url)
        except ValueError as error:
            text = f"{given!r}: {error}; give http://HOST:PORT"
            raise click.BadParameter(text, param_hint=name) from error
    settings = Settings(
        questions=questions or QUESTIONS,
        prompts=prompts or PROMPTS,
        max_new_tokens=max_new_tokens,
        min_accept_length=min_accept_length,
        tie_margin=tie_margin,
        parallel=parallel,
        long_tokens=long_tokens,
        baseline=baseline,
        timeout=timeout,
        speculation=not no_speculation,
    )
    checks = [check for check in CHECKS if not only or check.name in only]
    report = _run(Target(url, settings, api_key), checks)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        Console(highlight=False).print(_table(report))
    sys.exit(130 if report.partial else 0 if report.passed else 1)


def _run(target: Target, checks: Sequence[Check]) -> Report:
    done: list[Row] = []
    talk = Console(stderr=True, highlight=False)
    try:
        with talk.status("starting") as status:
            for row in rows(target, checks):
                done.append(row)
                if len(done) < len(checks):
                    status.update(f"{checks[len(done)].name} ({len(done) + 1} of {len(checks)})")
    except KeyboardInterrupt:
        return Report(target.url, done, partial=True)
    finally:
        target.close()
    return Report(target.url, done)


def _table(report: Report) -> Table:
    style = {Verdict.OK: "green", Verdict.FINDING: "bold red"}
    table = Table(title=f"{report.url}{' (partial)' if report.partial else ''}")
    for name in ("check", "verdict", "what was seen"):
        table.add_column(name, overflow="fold")
    for row in report.rows:
        result = row.outcome
        text = result.detail + (f"\nremedy: {result.remedy}" if result.remedy else "")
        table.add_row(row.name, result.verdict.value, text, style=style.get(result.verdict, "dim"))
    return table
