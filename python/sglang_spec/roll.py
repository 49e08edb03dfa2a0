"""`sglang-spec roll`: restart servers behind a router one after the other, and lose nothing.

A server that is told to stop finishes what it has accepted, but what is sent to it while it ends is
lost. So it is taken out of the router first, and put back when it has shown that it can decode.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

import click
import httpx

from .client import key_headers
from .finite import SECONDS
from .ready import why_not
from .router import PATIENCE, RollError, Router

EVERY = 0.5  # seconds between two questions


def roll_servers(
    router: Router,
    restart: Callable[[str], None],
    only: Sequence[str] = (),
    timeout: float = 7200.0,
    tell: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Restart each server of the router (or `only` these) by `restart(url)`; their URLs.

    `restart` returns once the new server was started, which need not answer yet. `timeout` is for
    each of: to finish what it has, to be ready, to be taken back.

    Raises:
        RollError: no other server is there to take over, or a step failed. The server at fault
            stays outside of the router; those after it were not touched.
    """
    known = router.workers()
    urls = [url.rstrip("/") for url in only] or list(known)
    strange = [url for url in urls if url not in known]
    if strange or not urls:
        raise RollError(
            f"{router.url} has no {strange or 'servers'}; it has {sorted(known)}. "
            f"One that an earlier roll left outside is handed back by {_back(strange)}"
        )
    for url in urls:
        _roll_one(router, url, restart, timeout, tell)
    return urls


def _roll_one(
    router: Router,
    url: str,
    restart: Callable[[str], None],
    timeout: float,
    tell: Callable[[str], None],
) -> None:
    now = router.workers()
    if url not in now:
        raise RollError(f"{url} was not restarted: {router.url} does not list it any more")
    if not any(healthy for other, (_, healthy) in now.items() if other != url):
        raise RollError(f"{url} was not restarted: no other server takes requests meanwhile")
    tell(f"{url}: no new requests")
    router.remove(now[url][0])
    _until(lambda: url not in router.workers(), timeout, f"{url} is still listed")
    _until(lambda: _idle(url), timeout, f"{url} has requests yet")
    tell(f"{url}: restart")
    restart(url)
    _hand_back(router, url, timeout, tell)


def hand_back(
    router: Router,
    urls: Sequence[str],
    timeout: float = 7200.0,
    tell: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Hand servers to the router that an earlier roll left outside; their URLs.

    Raises:
        RollError: one is listed already, or is not ready in time.
    """
    urls = [url.rstrip("/") for url in urls]
    for url in urls:
        if url in router.workers():
            raise RollError(f"{url} is listed already by {router.url}")
        _hand_back(router, url, timeout, tell)
    return urls


def _hand_back(router: Router, url: str, timeout: float, tell: Callable[[str], None]) -> None:
    _until(lambda: not why_not(url), timeout, f"{url} is not ready again", _back([url]))
    router.add(url)
    tell(f"{url}: ready, handed back to the router")
    _until(
        lambda: router.workers().get(url, ("", False))[1],
        timeout,
        f"{url} was not taken back by the router",
    )


def _back(urls: Sequence[str]) -> str:
    return f"--back {' --back '.join(urls) or 'URL'}"


def _idle(url: str) -> bool:
    """Whether a server has nothing to do; one that cannot say so (it is gone) has not either."""
    try:
        reply = httpx.get(
            f"{url}/v1/loads?include=core", timeout=PATIENCE, headers=key_headers()
        ).raise_for_status()
    except httpx.HTTPStatusError as error:
        raise RollError(f"{error}; with an API key, give it in SGLANG_API_KEY") from error
    except httpx.TransportError:
        return True
    loads = reply.json()["loads"]
    return not any(one["num_running_reqs"] or one["num_waiting_reqs"] for one in loads)


def _until(done: Callable[[], bool], timeout: float, otherwise: str, remedy: str = "") -> None:
    deadline = time.monotonic() + timeout
    while not done():
        if time.monotonic() > deadline:
            more = f"; once it is well: {remedy}" if remedy else ""
            raise RollError(f"{otherwise} after {timeout:.0f} s; it is outside of the router{more}")
        time.sleep(EVERY)


def by_command(template: str) -> Callable[[str], None]:
    """`restart` by a command in which {host}, {port} and {url} are those of the server."""

    def restart(url: str) -> None:
        at = urlsplit(url)
        values = {"host": at.hostname or "", "port": str(at.port or 80), "url": url}
        words = [word.format_map(values) for word in shlex.split(template)]
        try:
            code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as error:
            raise RollError(f"{url}: {shlex.join(words)}: {error}") from error
        if code != 0:
            raise RollError(
                f"{url}: {shlex.join(words)} ended with {code}; it is outside of the router"
            )

    return restart


@click.command()
@click.argument("router")
@click.option("--restart", help="Command; {host}, {port}, {url} are replaced.")
@click.option("--only", multiple=True, help="URL of a server, as the router lists it.")
@click.option("--back", multiple=True, help="URL of a server outside: hand it back, no restart.")
@click.option(
    "--timeout",
    default=7200.0,
    show_default=True,
    type=SECONDS,
    help="Seconds for each step of a server.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the servers as JSON.")
def roll(
    router: str,
    restart: str | None,
    only: tuple[str, ...],
    back: tuple[str, ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Restart the servers behind ROUTER, the URL of an sglang-router, one after the other.

    Each is taken out of the router, finishes what it has, is restarted, and comes back when it is
    ready. The key of servers and router is read from SGLANG_API_KEY. Exit code 0: all are back,
    1: it stopped, with the reason; the server it stopped at gets no requests, the others do. Once
    it is well, `--back URL` hands it back.

    \b
    Example: sglang-spec roll http://127.0.0.1:30100 \\
               --restart 'ssh {host} sudo systemctl restart sglang-spec@kimi-k2.5-h200'
    """
    if (restart is None) != bool(back) or (back and only):
        raise click.UsageError("give --restart COMMAND, or --back URL alone")
    tell = partial(click.echo, err=True)
    try:
        if restart is None:
            done = hand_back(Router(router), back, timeout, tell)
        else:
            _check(restart)
            done = roll_servers(Router(router), by_command(restart), only, timeout, tell)
    except RollError as error:
        click.echo(f"roll: {error}", err=True)
        sys.exit(1)
    word = "back" if back else "restarted"
    click.echo(json.dumps({word: done}) if as_json else "\n".join(done))


def _check(template: str) -> None:
    """UsageError for a command that cannot be made."""
    try:
        words = [
            word.format_map({"host": "h", "port": "1", "url": "u"})
            for word in shlex.split(template)
        ]
    except (ValueError, KeyError, IndexError) as error:
        raise click.BadParameter(
            f"{template!r}: {error!r}; write a command with {{host}}, {{port}} or {{url}}",
            param_hint="--restart",
        ) from error
    if not words:
        raise click.BadParameter("it is empty; write a command", param_hint="--restart")
