"""Servers behind `sglang-router`: requests while one is killed, hangs, drafts badly, is restarted.

python -m kit.replicas --output results/replicas.json   (in test/; needs sglang-router)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from sglang_spec import process
from sglang_spec.roll import roll_servers
from sglang_spec.router import Router

from . import degraded_replica, router_keys
from .behind_router import (
    SETTLED,
    Setup,
    environment_key,
    healthy,
    router_words,
    setup,
    wait,
    why_none,
)
from .routed_asks import KEYED, TOKENS, Ask, Outcome, asks, counted, flood, steady


def killed(made: Setup, known: list[Ask]) -> dict[str, Any]:
    """kill -9 of one of two under `CONCURRENT` requests; then it is started and taken back."""
    at_kill: dict[str, int] = {}

    def kill() -> None:
        at_kill.update({url: made.under_way(url) for url in made.servers})
        busiest = made.servers[max(at_kill, key=at_kill.__getitem__)]
        for one in process.session_members(busiest.pid):
            one.kill()

    outcomes = asyncio.run(flood(made.router, known, kill))
    url = max(at_kill, key=at_kill.__getitem__)
    victim = made.servers[url]
    victim.stop()
    out_after = wait(lambda: healthy(made) == 1, "the killed server is out")
    made.start(victim.port)
    before = made.sent(url)
    sent_while_starting = 0

    def back() -> bool:
        nonlocal sent_while_starting
        if healthy(made) == 2:
            return True
        sent_while_starting = made.sent(url) - before
        return False

    async def until_back() -> None:
        await asyncio.to_thread(wait, back, "the server is taken back")

    others = asyncio.run(steady(made.router, known, until_back(), clients=2))
    return {
        **counted(outcomes),
        "under_way_at_the_killed_one": at_kill[url],
        "seconds_until_out_once_all_were_answered": round(out_after, 1),
        "while_it_starts_again": {**counted(others), "sent_to_it": sent_while_starting},
    }


def hanging(made: Setup, known: list[Ask]) -> dict[str, Any]:
    """One server's rank stands still; /ready says 503, and nothing is sent there any more."""
    figures: dict[str, Any] = {}
    meanwhile: list[Outcome] = []

    def stand_still() -> None:
        wait(lambda: any(map(made.under_way, made.servers)), "a server has requests")
        url = max(made.servers, key=made.under_way)
        other = next(one for one in made.servers if one != url)
        ranks = process.tree(made.servers[url].pid)[1:]  # all that its front end has started
        for rank in ranks:
            rank.send_signal(signal.SIGSTOP)
        try:
            wait(lambda: httpx.get(f"{url}/ready", timeout=30).status_code == 503, "/ready is 503")
            figures["seconds_until_out"] = round(
                wait(lambda: healthy(made) == 1, "the router takes it out"), 1
            )
            time.sleep(SETTLED)
            before = {one: made.sent(one) for one in (url, other)}
            # Clients of its own: those above may all wait for the server that stands still.
            enough = lambda: made.sent(other) >= before[other] + 50  # noqa: E731
            fresh = asyncio.to_thread(wait, enough, "the other one answers")
            meanwhile.extend(asyncio.run(steady(made.router, known, fresh, clients=4)))
            figures["sent_to_it_while_out"] = made.sent(url) - before[url]
            figures["sent_to_the_other_meanwhile"] = made.sent(other) - before[other]
        finally:
            for rank in ranks:
                rank.send_signal(signal.SIGCONT)
        wait(lambda: healthy(made) == 2, "it is taken back")

    async def disturb() -> None:
        await asyncio.sleep(1)
        await asyncio.to_thread(stand_still)

    outcomes = asyncio.run(steady(made.router, known, disturb()))
    return {**counted(outcomes + meanwhile), **figures}


def rolled(made: Setup, known: list[Ask]) -> dict[str, Any]:
    """`sglang-spec roll` over both servers while clients ask."""

    def restart(url: str) -> None:
        old = made.servers[url]
        os.kill(old.pid, signal.SIGTERM)
        wait(lambda: old.returncode is not None, f"{url} has left")
        old.stop()
        made.start(old.port)

    async def all_of_them() -> list[str]:
        with environment_key():
            return await asyncio.to_thread(roll_servers, Router(made.router), restart, (), 120.0)

    outcomes = asyncio.run(steady(made.router, known, all_of_them()))
    return {**counted(outcomes), "restarted": len(made.servers)}


def run(folder: Path) -> dict[str, Any]:
    known = asks()
    with setup(folder) as made:
        server = next(iter(made.servers))
        info = httpx.get(f"{server}/server_info", timeout=60, headers=KEYED).json()
        found: dict[str, Any] = {}
        for phase in (killed, hanging, rolled, degraded_replica.degraded, router_keys.keys):
            found[phase.__name__] = phase(made, known)
            print(phase.__name__, json.dumps(found[phase.__name__]), file=sys.stderr)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "program": "python -m kit.replicas",
        "sglang": info["version"],
        "patch_set": info["spec_hardening"]["provenance"]["patch_set"],
        "sglang_router": version("sglang-router"),
        "router_command": router_words(30100, 29000, ["URL", "URL"], "KEY")[1:],
        "cores": os.cpu_count(),
        "model": "tiny pair, CPU",
        "tokens_of_an_answer": TOKENS,
        **found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if missing := why_none():
        print(missing, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder))
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
