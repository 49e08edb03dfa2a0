"""One visit to a machine: start the servers, measure the modes in turn, keep what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .. import process
from ..server import Server, Spawn
from . import kernels
from .mode import Settings, launch
from .record import Record
from .scene import Scene, Steady

Say = Callable[[str], None]
READY_SECONDS = 900.0


class OutOfTime(RuntimeError):
    """The visit's time is over; what was measured is kept."""


@dataclass(frozen=True)
class Plan:
    """`together` servers are up at a time; `rounds` measurements of each scene on each of them.

    `seconds` is the time for all of it, 0 for no limit; `profiles` are scenes whose kernels are
    looked at on every server of a mode in `profiled`.
    """

    modes: tuple[str, ...]
    scenes: tuple[Scene, ...]
    rounds: int
    together: int
    seconds: float
    logs: Path
    profiles: tuple[Steady, ...] = ()
    profiled: tuple[str, ...] = ()

    def groups(self) -> list[tuple[str, ...]]:
        step = self.together
        return [self.modes[at : at + step] for at in range(0, len(self.modes), step)]

    def describe(self) -> list[str]:
        lines = [
            f"group {number}: servers {', '.join(group)}"
            for number, group in enumerate(self.groups(), 1)
        ]
        lines += [f"scene {scene.key}: {self.rounds} rounds in turn" for scene in self.scenes]
        lines += [f"profile {scene.key} on {', '.join(self.profiled)}" for scene in self.profiles]
        return lines


def run(
    plan: Plan, settings: Settings, record: Record, say: Say, spawn: Spawn = process.spawn
) -> None:
    """Measure everything in `plan`, on servers that `spawn` starts.

    Raises:
        OutOfTime, ServerError, LoadError, httpx.HTTPError: what came in the way; what was measured
            until then is in the record.
    """
    deadline = time.monotonic() + plan.seconds if plan.seconds else None
    for group in plan.groups():
        with ExitStack() as stack:
            servers = _start(group, plan, settings, record, say, stack, spawn, deadline)
            for scene in plan.scenes:
                _measure(scene, servers, plan, record, say, deadline)
            for mode in plan.profiled:
                if mode in servers:
                    for scene in plan.profiles:
                        _in_time(deadline)
                        say(f"profile of {mode}, {scene.key}")
                        found = kernels.profile(servers[mode].url, scene, plan.logs)
                        record.visit["profiles"].setdefault(mode, {})[scene.key] = found
                        record.write()


def _start(
    group: Sequence[str],
    plan: Plan,
    settings: Settings,
    record: Record,
    say: Say,
    stack: ExitStack,
    spawn: Spawn,
    deadline: float | None,
) -> dict[str, Server]:
    """The group's servers, ready; they start at the same time."""
    begun = time.monotonic()
    say(f"starting {', '.join(group)} …")
    launches = {mode: launch(mode, settings) for mode in group}
    servers = {
        mode: stack.enter_context(
            Server(launches[mode], plan.logs / f"threshold-{mode}.log", spawn=spawn)
        )
        for mode in group
    }
    for server in servers.values():
        left = READY_SECONDS if deadline is None else deadline - time.monotonic()
        server.wait_ready(max(min(left, READY_SECONDS), 1.0))
    say(f"ready after {time.monotonic() - begun:.0f} s")
    for mode, server in servers.items():
        command = launches[mode].command(0)
        record.visit["servers"][mode] = {
            "command": " ".join(command[command.index("-m") :]),
            "environment": dict(launches[mode].environment),
            **_about(server.url, record),
        }
    record.write()
    return servers


def _about(url: str, record: Record) -> dict[str, Any]:
    """Memory and threshold of a server; its provenance goes to the visit."""
    info = httpx.get(f"{url}/server_info", timeout=60).raise_for_status().json()
    record.visit["provenance"] = dict(info.get("spec_hardening", {}).get("provenance", {}))
    state = info["internal_states"][0]
    memory = state.get("memory_usage", {})
    threshold = state.get("batch_threshold") or {}
    graphs = memory.get("graph")
    found: dict[str, Any] = {"memory": memory, "kv_tokens": memory.get("token_capacity")}
    if threshold:
        found["threshold"] = threshold
    if isinstance(graphs, dict):
        kept = sum(float(threshold.get(key, 0)) for key in ("ring_gb", "graph_gb"))
        found["state_gb"] = round(sum(v for v in graphs.values() if v) + kept, 4)
    return found


def _measure(
    scene: Scene,
    servers: dict[str, Server],
    plan: Plan,
    record: Record,
    say: Say,
    deadline: float | None,
) -> None:
    for server in servers.values():
        _in_time(deadline)
        scene.warm(server.url)
    names = list(servers)
    for number in range(plan.rounds):
        turn = number % len(names)
        said = []
        for mode in names[turn:] + names[:turn]:
            _in_time(deadline)
            found = scene.run(servers[mode].url)
            record.add(scene.key, mode, number, found)
            said.append(f"{mode} {found.get('tok_s', found.get('accept_length'))}")
        say(f"{scene.key}, round {number + 1}: {', '.join(sorted(said))}")


def _in_time(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise OutOfTime("the visit's time is over")
