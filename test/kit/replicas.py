"""Two servers behind `sglang-router`: requests while one is killed, hangs or is restarted.

python -m kit.replicas --output results/replicas.json   (in test/; needs sglang-router)

Each answer is known beforehand (the tiny pair), so a request that was answered wrongly counts as
lost too. Half of the requests are streamed: such a request can be sent again only until its answer
has begun.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from sglang_spec import host, process
from sglang_spec.models import tiny_pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.roll import roll_servers
from sglang_spec.router import Router
from sglang_spec.server import Launch, Server, Speculation

from .guide import commands
from .preloaded import Zygote
from .servers import spawner

GUIDE = Path(__file__).resolve().parents[2] / "docs/operations.md"
PROMPTS = 40
TOKENS = 160  # of an answer
CONCURRENT = 200
PATIENCE = 300.0  # seconds for one request, retries included


def why_none() -> str:
    """Why this cannot run here, "" if it can."""
    if host.device() != "cpu":
        return "two servers of the tiny pair run on the CPU"
    if importlib.util.find_spec("sglang_router") is None:
        return "needs sglang-router (pyproject.toml has the version)"
    return ""


@dataclass(frozen=True)
class Ask:
    """One request; its answer is known."""

    prompt: list[int]
    answer: list[int]
    streamed: bool


@dataclass
class Outcome:
    """`begun`: a header of the answer had come. `kind`: `complete`, or how it failed."""

    streamed: bool
    kind: str = ""
    begun: bool = False
    status: int = 0

    @property
    def retryable(self) -> bool:
        """Nothing of an answer had reached the client, so somebody else could give it."""
        return not (self.streamed and self.begun)


def asks() -> list[Ask]:
    oracle, rng = Oracle(TINY), random.Random(5)
    found = []
    for number in range(PROMPTS):
        prompt = [BOS, *(rng.randrange(SPECIALS, VOCABULARY) for _ in range(20))]
        found.append(Ask(prompt, oracle.greedy(prompt, TOKENS), number % 2 == 1))
    return found


async def send(http: httpx.AsyncClient, url: str, ask: Ask) -> Outcome:
    """Ask once, as a client that does not retry."""
    out = Outcome(ask.streamed)
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    body = {"input_ids": ask.prompt, "sampling_params": sampling, "stream": ask.streamed}
    last: dict[str, Any] = {}
    ended = not ask.streamed
    try:
        async with http.stream("POST", f"{url}/generate", json=body) as reply:
            out.begun, out.status = True, reply.status_code
            if reply.status_code != 200:
                code = (await reply.aread()).decode("utf-8", "replace")
                found = re.search(r'"code": ?"(\w+)"', code)
                out.begun = False
                out.kind = f"HTTP {reply.status_code} {found[1] if found else ''}".strip()
                return out
            if not ask.streamed:
                last = json.loads(await reply.aread())
            else:
                async for line in reply.aiter_lines():
                    ended = ended or line == "data: [DONE]"
                    if line.startswith("data: {"):
                        last = json.loads(line.removeprefix("data: "))
    except httpx.HTTPError as error:
        out.kind = f"cut: {type(error).__name__}"
        return out
    if "error" in last:
        out.kind = "error event"
    elif not ended:
        out.kind = "ended without [DONE]"
    else:
        out.kind = "complete" if last.get("output_ids") == ask.answer else "wrong answer"
    return out


@dataclass
class Setup:
    """The servers by URL, and the router before them."""

    folder: Path
    zygote: Zygote
    servers: dict[str, Server] = field(default_factory=dict)
    router: str = ""
    metrics: str = ""

    def start(self, port: int | None = None) -> Server:
        pair = tiny_pair()
        launch = Launch(
            pair.target,
            Speculation(pair.draft),
            arguments=("--skip-server-warmup", "--speculative-verify-timeout", "2"),
        )
        log = self.folder / f"server-{len(list(self.folder.glob('server-*')))}.log"
        server = Server(launch, log, port, spawn=spawner(self.zygote))
        self.servers[server.url] = server
        return server

    def sent(self, url: str) -> int:
        """How many requests the router has sent to this server, answered or not."""
        return sum(self._of(name, url) for name in ("cb_outcomes_total", "requests_active"))

    def under_way(self, url: str) -> int:
        """How many requests the router waits for at this server."""
        return self._of("requests_active", url)

    def _of(self, name: str, url: str) -> int:
        start = f'smg_worker_{name}{{worker="{url}"'
        lines = httpx.get(self.metrics, timeout=30).text.splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def router_words(port: int, metrics: int, servers: list[str]) -> list[str]:
    """The guide's own command, for these servers: what is measured is what is written there."""
    line = next(line for line in commands(GUIDE) if "sglang_router.launch_router" in line)
    words = line.replace("'", "").replace('"', "").split()
    at = words.index("--worker-urls")
    kept = words[1:at]  # after `python`
    for flag, value in (("--host", "127.0.0.1"), ("--port", port), ("--prometheus-port", metrics)):
        kept[kept.index(flag) + 1] = str(value)
    return [sys.executable, *kept, "--worker-urls", *servers]


@contextmanager
def setup(folder: Path) -> Iterator[Setup]:
    zygote = Zygote()
    made = Setup(folder, zygote)
    router: subprocess.Popen[bytes] | None = None
    try:
        for _ in range(2):
            made.start().wait_ready()
        port, metrics = process.free_port(), process.free_port()
        made.router = f"http://127.0.0.1:{port}"
        made.metrics = f"http://127.0.0.1:{metrics}/metrics"
        router = process.spawn(
            router_words(port, metrics, list(made.servers)),
            folder / "router.log",
            dict(os.environ),
        )
        wait(lambda: healthy(made) == len(made.servers), "the router knows both servers")
        yield made
    finally:
        if router is not None:
            process.stop(router)
        for server in made.servers.values():
            server.stop()
        zygote.close()


def healthy(made: Setup) -> int:
    try:
        found = httpx.get(f"{made.router}/workers", timeout=10).json()["workers"]
    except httpx.HTTPError:
        return 0
    return sum(one["is_healthy"] for one in found)


def wait(done: Callable[[], bool], what: str, seconds: float = 120.0) -> float:
    begun = time.monotonic()
    while not done():
        if time.monotonic() > begun + seconds:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - begun


def counted(outcomes: list[Outcome]) -> dict[str, Any]:
    """Requests by what became of them; the figures of the record."""
    found: dict[str, Any] = {"requests": len(outcomes)}
    for name, streamed in (("whole", False), ("streamed", True)):
        some = Counter(one.kind for one in outcomes if one.streamed is streamed)
        found[name] = dict(sorted(some.items()))
    lost = [one for one in outcomes if one.kind != "complete"]
    found["retryable_lost"] = sum(one.retryable for one in lost)
    found["begun_and_cut"] = sum(not one.retryable for one in lost)
    found["wrong_or_silently_short"] = sum(
        one.kind in ("wrong answer", "ended without [DONE]") for one in lost
    )
    return found


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=PATIENCE, limits=httpx.Limits(max_connections=None))


async def flood(made: Setup, known: list[Ask], then: Callable[[], None]) -> list[Outcome]:
    """`CONCURRENT` requests at once; `then` once a tenth of them is answered."""
    async with client() as http:
        tasks = [
            asyncio.create_task(send(http, made.router, known[number % len(known)]))
            for number in range(CONCURRENT)
        ]
        while sum(task.done() for task in tasks) < CONCURRENT // 10:
            await asyncio.sleep(0.01)
        then()
        return list(await asyncio.gather(*tasks))


async def steady(
    made: Setup, known: list[Ask], while_: Awaitable[Any], clients: int = 8
) -> list[Outcome]:
    """`clients` that ask without a pause for as long as `while_` takes."""
    work = asyncio.ensure_future(while_)
    outcomes: list[Outcome] = []

    async def one(http: httpx.AsyncClient, number: int) -> None:
        while not work.done():
            outcomes.append(await send(http, made.router, known[number % len(known)]))
            number += clients

    async with client() as http:
        await asyncio.gather(*(one(http, number) for number in range(clients)))
    await work
    return outcomes


def killed(made: Setup, known: list[Ask]) -> dict[str, Any]:
    """kill -9 of one of two under `CONCURRENT` requests; then it is started and taken back."""
    at_kill: dict[str, int] = {}

    def kill() -> None:
        at_kill.update({url: made.under_way(url) for url in made.servers})
        busiest = made.servers[max(at_kill, key=at_kill.__getitem__)]
        for one in process.session_members(busiest.pid):
            one.kill()

    outcomes = asyncio.run(flood(made, known, kill))
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

    others = asyncio.run(steady(made, known, until_back(), clients=2))
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
            before = {one: made.sent(one) for one in (url, other)}
            # Clients of its own: those above may all wait for the server that stands still.
            enough = lambda: made.sent(other) >= before[other] + 50  # noqa: E731
            fresh = asyncio.to_thread(wait, enough, "the other one answers")
            meanwhile.extend(asyncio.run(steady(made, known, fresh, clients=4)))
            figures["sent_to_it_while_out"] = made.sent(url) - before[url]
            figures["sent_to_the_other_meanwhile"] = made.sent(other) - before[other]
        finally:
            for rank in ranks:
                rank.send_signal(signal.SIGCONT)
        wait(lambda: healthy(made) == 2, "it is taken back")

    async def disturb() -> None:
        await asyncio.sleep(1)
        await asyncio.to_thread(stand_still)

    outcomes = asyncio.run(steady(made, known, disturb()))
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
        return await asyncio.to_thread(roll_servers, Router(made.router), restart, (), 120.0)

    outcomes = asyncio.run(steady(made, known, all_of_them()))
    return {**counted(outcomes), "restarted": len(made.servers)}


def run(folder: Path) -> dict[str, Any]:
    known = asks()
    with setup(folder) as made:
        info = httpx.get(f"{next(iter(made.servers))}/server_info", timeout=60).json()
        found: dict[str, Any] = {}
        for phase in (killed, hanging, rolled):
            found[phase.__name__] = phase(made, known)
            print(phase.__name__, json.dumps(found[phase.__name__]), file=sys.stderr)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "program": "python -m kit.replicas",
        "sglang": info["version"],
        "patch_set": info["spec_hardening"]["provenance"]["patch_set"],
        "sglang_router": version("sglang-router"),
        "router_command": router_words(30100, 29000, ["URL", "URL"])[1:],
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
