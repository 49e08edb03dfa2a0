"""Soak a server: `python -m soak --requests 1000 --seed 1 --output soak.json`.

Without --url it starts two servers of the tiny pair, one with speculation and one without. With
--url it soaks that server against --baseline, a server of the same target without speculation, or,
with --pair tiny or tiny-half, against the pair's oracle alone. Exit status 1: a difference or a
leak; a failing few requests are in --failing, to be sent again with --replay.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.fleet import READY_WITHIN
from kit.servers import ServerPool
from sglang_spec import host
from sglang_spec.server import Launch, Server

from . import leaks, record
from .case import CaseError, Failing
from .judge import Difference, Rules
from .planner import Limits, Planner, Round
from .reference import Reference
from .settings import PLANS, Settings
from .shrink import sizes
from .soak import Found, Soak, Subject


class Own:
    """A server of ours, that can be started again."""

    def __init__(self, pool: ServerPool, launch: Launch, name: str) -> None:
        self._pool, self._launch, self._name = pool, launch, name
        self._server: Server = pool.start(launch, name)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int | None:
        return self._server.pid

    def ready(self) -> None:
        self._server.wait_ready(READY_WITHIN)

    def ended(self) -> str:
        code = self._server.returncode
        return "" if code is None else f"exit code {code}; {self._server.log_tail(8)}"

    def restart(self) -> None:
        self._server.stop()
        self._server = self._pool.start(self._launch, self._name)
        self._server.wait_ready(READY_WITHIN)

    def stop(self) -> None:
        self._server.stop()


class Foreign:
    """A server that somebody else runs."""

    def __init__(self, url: str, pid: int | None) -> None:
        self.url, self.pid = url.rstrip("/"), pid

    def ended(self) -> str:
        return ""

    def restart(self) -> None:
        raise SystemExit(f"soak: {self.url} has ended")


@contextmanager
def servers(settings: Settings, baseline: bool) -> Iterator[tuple[Subject, str | None]]:
    """Both servers of our own, started at once and stopped at the end."""
    spec, plain = settings.launches()
    pool = ServerPool()
    started: list[Own] = []
    try:
        started = [Own(pool, spec, "soak")]
        if baseline:
            started.append(Own(pool, plain, "soak-plain"))
        for server in started:
            server.ready()
        yield started[0], started[1].url if baseline else None
    finally:
        for server in started:
            server.stop()
        pool.close()


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--seed", type=int, help="default: drawn, and printed")
    parser.add_argument("--round", type=int, help="requests between two measurements")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no round after that")
    parser.add_argument("--shrink-seconds", type=float, default=120)
    parser.add_argument("--timeout", type=float, default=120, help="of a silent request, s")
    parser.add_argument("--url", help="of the server to soak; default: own servers")
    parser.add_argument("--baseline", help="URL of a server without speculation")
    parser.add_argument("--no-baseline", action="store_true", help="only the oracle")
    parser.add_argument("--pid", type=int, help="of the server at --url, to watch its memory")
    parser.add_argument("--tokens", default="1000:20000", help="ordinary ids of --url's model")
    parser.add_argument("--pair", choices=(*PLANS, "embedded"))
    parser.add_argument("--backend", help="attention backend of own servers on a GPU")
    parser.add_argument("--pool", type=int, help="KV slots of the own server")
    parser.add_argument("--threshold", type=int, help="batch size from which speculation is off")
    parser.add_argument("--prompt", type=int, help="most tokens of a prompt")
    parser.add_argument("--new", type=int, help="most tokens of an answer")
    parser.add_argument("--server-arg", action="append", default=[], help="--server-arg=--FLAG=V")
    parser.add_argument("--replay", type=Path, help="send the requests of such a file again")
    parser.add_argument("--attempts", type=int, default=20, help="of a replay, until one differs")
    parser.add_argument("--failing", type=Path, default=Path("build/soak-failing.json"))
    parser.add_argument("--output", type=Path, help="add the result to this record")
    options = parser.parse_args(words)
    for name in ("prompt", "new"):
        if getattr(options, name) is not None and getattr(options, name) < 3:
            parser.error(f"--{name} {getattr(options, name)}: give 3 tokens or more")
    if options.attempts < 1:
        parser.error(f"--attempts {options.attempts}: give 1 or more")
    if options.url and not options.baseline and options.pair not in PLANS:
        parser.error("--url needs --baseline URL, or --pair tiny or tiny-half if it serves that")
    return options


def chosen(options: argparse.Namespace) -> Settings:
    given = {
        name: getattr(options, name)
        for name in ("pair", "backend", "pool", "threshold")
        if getattr(options, name) is not None
    }
    return replace(Settings.of_host(), **given, arguments=tuple(options.server_arg))


def within(limits: Limits, options: argparse.Namespace) -> Limits:
    """Shorter requests, or longer ones, where that was asked for."""
    given = {k: v for k in ("prompt", "new") if (v := getattr(options, k)) is not None}
    return replace(limits, **given)


@contextmanager
def prepared(options: argparse.Namespace, settings: Settings) -> Iterator[tuple[Soak, Limits]]:
    """The soak of one's own servers, or of the one at --url."""
    gpu = not options.url and host.device() != "cpu"
    if options.url:
        known = options.pair in PLANS
        oracle = settings.oracle() if known else None
        low, _, high = options.tokens.partition(":")
        limits = settings.limits() if known else Limits(int(low), int(high))
        reference = Reference(oracle, options.baseline)
        subject = Foreign(options.url, options.pid)
        # How it speculates is not known, so neither are its accept lengths.
        rules = replace(settings.rules(), lengths=None) if known else Rules()
        yield Soak(subject, reference, rules, settings.written(), options.timeout), limits
        return
    with servers(settings, not options.no_baseline) as (own, plain):
        reference = Reference(settings.oracle(), plain, settings.running)
        rules = settings.rules()
        yield (
            Soak(own, reference, rules, settings.written(), options.timeout, gpu),
            settings.limits(),
        )


def replay(options: argparse.Namespace) -> int:
    try:
        failing = Failing.read(options.replay)
    except CaseError as error:
        sys.exit(f"soak: {error}")
    settings = Settings.read(failing.settings)
    said: list[Difference] = []
    attempts = 0
    with prepared(options, settings) as (soak, _):
        # Whether the requests meet in a batch as they did is a matter of milliseconds.
        while not said and attempts < options.attempts and not soak.subject.ended():
            attempts += 1
            said = soak.round(Round(failing.round, failing.at_once, failing.cases))
    for difference in said:
        print(difference)
    times = "once" if attempts == 1 else f"{attempts} times"
    print(f"{len(failing.cases)} requests sent again {times}: {len(said)} differences")
    return int(bool(said))


def summary(found: Found, planner: Planner, seconds: float, soak: Soak) -> dict[str, Any]:
    return {
        "device": host.device(),
        "settings": soak.settings,
        "most": {"prompt": planner.limits.prompt, "new": planner.limits.new},
        "seed": planner.seed,
        "requests": found.requests,
        "differences": [str(difference)[:400] for difference in found.differences],
        "leaks": [str(leak) for leak in found.leaks],
        "counts": dict(sorted(found.counts.items())),
        "answers_of_baseline": soak.reference.asked,
        "held": leaks.figures(found.samples),
        "seconds": round(seconds, 1),
        "provenance": record.provenance(),
    }


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    if options.replay:
        return replay(options)
    settings = chosen(options)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    size = options.round or max(20, min(250, options.requests // 15))
    print(f"soak: seed {seed}, {options.requests} requests in rounds of {size}", flush=True)
    with prepared(options, settings) as (soak, limits):
        answers = soak.reference.answers if soak.reference.oracle is not None else None
        started = time.monotonic()
        planner = Planner(seed, within(limits, options), answers)
        found = soak.run(
            planner,
            options.requests,
            size,
            options.seconds,
            options.shrink_seconds,
        )
        content = summary(found, planner, time.monotonic() - started, soak)
    if options.output:
        record.write(options.output, [content])
    if found.failing is not None and found.shrunk is not None:
        found.failing.write(options.failing)
        again = "they fail again" if found.shrunk.repeats else "they did not fail again"
        print(f"{len(found.failing.cases)} requests in {options.failing}; {again}:")
        print("\n".join(sizes(found.failing.cases[:10])))
    for leak in found.leaks:
        print(leak)
    print(
        f"soak: seed {seed}: {found.requests} requests, {len(found.differences)} differences, "
        f"{len(found.leaks)} leaks in {content['seconds']} s; {content['counts']}"
    )
    return int(not found.clean)


if __name__ == "__main__":
    sys.exit(main())
