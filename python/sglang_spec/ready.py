"""`sglang-spec ready`: has a server shown that it can decode? For supervisors and health checks."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
import httpx

from .finite import Finite
from .recipe.problem import RecipeError
from .recipe.read import load

EVERY = 2.0  # seconds between two questions
PATIENCE = 10.0  # seconds for one answer


@click.command()
@click.argument("server")
@click.option("--set", "changes", multiple=True, help="SECTION.KEY=VALUE over the recipe's.")
@click.option(
    "--timeout", default=0.0, show_default=True, type=Finite(0), help="Seconds to go on asking."
)
def ready(server: str, changes: tuple[str, ...], timeout: float) -> None:
    """Ask `/ready` of SERVER, a URL or the recipe it was started from (then on this host).

    `/ready` is 200 once the self-test has decoded, and 503 while a rank is gone or a verify hangs.
    Exit code 0: ready, 1: not, with the reason, 2: wrong usage.

    \b
    Examples: sglang-spec ready http://127.0.0.1:30000
              sglang-spec ready recipes/embedded.toml --timeout 600
    """
    if changes and "://" in server:
        raise click.UsageError("--set is for a recipe, and this is a URL")
    url = server if "://" in server else _url_of(Path(server), changes)
    deadline = time.monotonic() + timeout
    while reason := why_not(url):
        if time.monotonic() + EVERY > deadline:
            click.echo(f"{url} is not ready: {reason}", err=True)
            sys.exit(1)
        time.sleep(EVERY)


def why_not(url: str) -> str:
    """Why a server is not ready, "" if it is; UsageError for what is no URL."""
    try:
        urlsplit(url).port  # noqa: B018  (ValueError for a port that is none)
        reply = httpx.get(f"{url.rstrip('/')}/ready", timeout=PATIENCE)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as error:
        raise click.BadParameter(
            f"{url!r}: {error}; give http://HOST:PORT or a recipe", param_hint="SERVER"
        ) from error
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    if reply.status_code == 200:
        return ""
    return f"HTTP {reply.status_code}" + (f": {reply.text[:500]}" if reply.text else "")


def _url_of(recipe: Path, changes: Sequence[str] = ()) -> str:
    """Where a server of this recipe answers on its own host."""
    try:
        listen = load(recipe, changes).listen
    except RecipeError as error:
        raise click.UsageError(str(error)) from error
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}
    return f"http://{everywhere.get(listen.host, listen.host)}:{listen.port}"
