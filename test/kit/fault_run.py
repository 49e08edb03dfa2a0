"""One run of a server or an Engine with a fault injected, and what became of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from sglang_spec import host, process
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation, cpu_arguments

from . import standing
from .litter import Litter
from .preloaded import Zygote
from .servers import LOGS, spawner

PROGRAM = str(Path(__file__).with_name("engine_program.py"))
# Every path that says "I am well" to somebody.
PROBES = ("/health", "/health_generate", "/ready")
# Seconds that only a run which hangs takes: for a stage, and for all of it.
LIMIT = 400.0
GRACE = 60.0  # seconds until what is still there is left behind


@dataclass(frozen=True)
class Outcome:
    """What a run with a fault came to.

    `code` is the exit code (None: it was still running and was stopped by the test), `line` the
    final line of the log or the text of the exception, `seconds` from the start to the end or to
    the first 503, `greens` the probes that said 200, `left` what outlived it.
    """

    code: int | None
    line: str
    seconds: float
    greens: tuple[str, ...] = ()
    reds: tuple[str, ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    left: tuple[str, ...] = ()
    log: Path = Path()


@dataclass(frozen=True)
class Plan:
    """A launch with a fault. `tp` ranks; `serve` > 0 also sends requests once it is up."""

    fault: str
    tp: int = 1
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    tokens: int = 16

    @property
    def hangs(self) -> bool:
        return ":hang" in self.fault

    def full_environment(self) -> dict[str, str]:
        bind = "|".join(str(rank % 2) for rank in range(self.tp))
        own = {
            "SGLANG_TEST_MODE": "1",
            **({"SGLANG_SPEC_FAULT": self.fault} if self.fault else {}),
            "SGLANG_SPEC_STAGE_TIMEOUT": str(LIMIT),
            **({"SGLANG_CPU_OMP_THREADS_BIND": bind} if self.tp > 1 else {}),
        }
        return {**own, **self.environment}


_count = 0


def _log(kind: str, plan: Plan) -> Path:
    global _count
    _count += 1
    name = plan.fault.replace(":", "-") or "none"
    return LOGS / f"fault-{os.getpid()}-{_count}-{kind}-tp{plan.tp}-{name}.log"


def run_server(
    zygote: Zygote | None,
    pair: Pair,
    plan: Plan,
    limit: float = LIMIT,
    start: Callable[[Launch, Path], Server] | None = None,
) -> Outcome:
    """Start it, probe it all the while, and once it is up ask it to decode; until it ends, or, if
    the fault is a hang, until every probe is red. `start` is given where another program is to be
    started in the server's place."""
    launch = Launch(
        pair.target,
        Speculation(pair.draft),
        arguments=("--tp-size", str(plan.tp), "--skip-server-warmup", *plan.arguments),
        environment=plan.full_environment(),
    )
    litter = Litter()
    log = _log("http", plan)
    server = start(launch, log) if start else Server(launch, log, spawn=spawner(zygote))
    litter.of(server.pid)
    begun = time.monotonic()
    greens: list[str] = []
    reds: list[str] = []
    asker: threading.Thread | None = None
    try:
        with httpx.Client(base_url=server.url, timeout=60) as http:
            while server.returncode is None and time.monotonic() < begun + limit:
                all_red = len(greens), len(reds) + len(PROBES)
                for path in PROBES:
                    _probe(http, path, greens, reds)
                if greens and asker is None:
                    # Not waited for: it hangs, or its connection is cut.
                    asker = threading.Thread(
                        target=_ask, args=(server.url, plan.tokens, limit), daemon=True
                    )
                    asker.start()
                elif asker and plan.hangs and (len(greens), len(reds)) == all_red:
                    break
                time.sleep(0.2)
        seconds = time.monotonic() - begun
        code = server.returncode
        orphans = _orphans(server.pid) if code is not None else ()
    finally:
        server.stop()
        litter.close()
    left: tuple[str, ...] = ()
    if code is not None:
        left = (*orphans, *_listening(server.port), *litter.left(GRACE))
    return Outcome(code, last_line(log), seconds, tuple(greens), tuple(reds), left=left, log=log)


def run_engine(
    zygote: Zygote | None, pair: Pair, plan: Plan, limit: float = LIMIT, **options: Any
) -> Outcome:
    """The same for a program that makes an Engine; `options` are those of `engine_program`."""
    flags = cpu_arguments() if host.device() == "cpu" else []
    engine = {
        "model_path": str(pair.target),
        "dtype": "bfloat16",
        "tp_size": plan.tp,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(pair.draft),
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        **_as_arguments([*flags, *plan.arguments]),
    }
    request = {"engine": engine, "generate": plan.tokens, **options}
    litter = Litter()
    log = _log("engine", plan)
    begun = time.monotonic()
    environment = {**host.engine_environment(1), **plan.full_environment()}
    child: process.Child
    if zygote is None:
        child = process.spawn([sys.executable, PROGRAM, json.dumps(request)], log, environment)
    else:
        child = zygote.start(PROGRAM, [json.dumps(request)], log, environment)
    litter.of(child.pid)
    try:
        code = _end(child, log, limit)
        seconds = time.monotonic() - begun
        orphans = _orphans(child.pid) if code is not None else ()
    finally:
        process.stop(child)
        litter.close()
    events = [json.loads(line) for line in log.read_text().splitlines() if line[:9] == '{"event":']
    raised = [event for event in events if event["event"] == "raised"]
    line = raised[0]["text"] if raised else last_line(log)
    left = (*orphans, *litter.left(GRACE)) if code is not None else ()
    return Outcome(code, line, seconds, events=tuple(events), left=left, log=log)


def _end(child: process.Child, log: Path, limit: float) -> int | None:
    """Its exit code; None if it is still there after `limit` seconds, or `GRACE` seconds after its
    own last line. Where it stands then is beside the log."""
    deadline = time.monotonic() + limit
    said = False
    while (left := deadline - time.monotonic()) > 0:
        try:
            return child.wait(min(left, 5.0))
        except subprocess.TimeoutExpired:
            if not said and '"event": "alive"' in log.read_text(errors="replace"):
                said = True
                deadline = min(deadline, time.monotonic() + GRACE)
    standing.say(child.pid, log)
    return None


def last_line(log: Path) -> str:
    """What the server said last. The tracker of shared memory outlives it and may warn (3.12)."""
    said = log.read_text(errors="replace").splitlines()
    lines = [line for line in said if line.strip() and "resource_tracker" not in line]
    return lines[-1] if lines else ""


def _as_arguments(flags: list[str]) -> dict[str, Any]:
    """`--some-flag 3` as Engine arguments."""
    found: dict[str, Any] = {}
    name = ""
    for flag in flags:
        if flag.startswith("--"):
            name = flag[2:].replace("-", "_")
            found[name] = True
        else:
            found[name] = json.loads(flag) if flag.replace(".", "", 1).isdigit() else flag
    return found


def _probe(http: httpx.Client, path: str, greens: list[str], reds: list[str]) -> None:
    try:
        reply = http.get(path)
    except httpx.HTTPError:
        return  # not listening yet, or no more
    (greens if reply.status_code == 200 else reds).append(f"{path} {reply.text[:200]}")


def _ask(url: str, tokens: int, timeout: float) -> None:
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body = {"input_ids": [1, 5, 6, 7], "sampling_params": sampling}
    with suppress(httpx.HTTPError):  # it died over it, or hangs: the loop above says which
        httpx.post(f"{url}/generate", json=body, timeout=timeout)


def _orphans(session: int) -> tuple[str, ...]:
    """What the program started and did not take with it; it is given `GRACE`."""
    deadline = time.monotonic() + GRACE
    while (alive := process.session_members(session)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return tuple(f"process {one.pid}" for one in alive)


def _listening(port: int) -> tuple[str, ...]:
    """The port, if somebody still listens there."""
    heard = psutil.net_connections("tcp")
    there = any(one.laddr.port == port for one in heard if one.status == psutil.CONN_LISTEN)
    return (f"port {port}",) if there else ()
