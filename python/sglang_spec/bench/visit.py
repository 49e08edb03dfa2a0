"""One visit to a machine: start the servers, measure the modes in turn, keep what was found.

Time on such a machine ends without a word, so what matters comes early: a round of every scene
before the second of any, the profiles after the second. A server that is lost ends only itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .. import process
from ..server import Server, ServerError, Spawn, stop_all
from . import kernels
from .load import LoadError
from .mode import Settings, launch, measures_itself
from .record import Record
from .scene import Scene, Steady

Say = Callable[[str], None]
READY_SECONDS = 900.0
PROFILE_AFTER = 2  # rounds


class OutOfTime(RuntimeError):
    """The visit's time is over; what was measured is kept."""


@dataclass(frozen=True)
class Step:
    """What is done next with the servers that are up.

    "warm": all `scenes` on all of them at once; "measure": one scene on each in turn, as round
    `number`; "profile": the kernels of all `scenes`.
    """

    kind: str
    scenes: tuple[Scene, ...]
    number: int = 0


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

    def steps(self) -> Iterator[Step]:
        """In their order. Scenes of one context length share what is in the prefix cache."""
        lengths = dict.fromkeys(scene.context for scene in self.scenes)
        blocks = [tuple(s for s in self.scenes if s.context == length) for length in lengths]
        profile = [Step("profile", self.profiles)] if self.profiles else []
        for block in blocks:
            yield Step("warm", block)
            for number in range(self.rounds):
                yield from (Step("measure", (scene,), number) for scene in block)
                if number + 1 == PROFILE_AFTER:
                    yield from profile
                    profile = []
        yield from profile

    def describe(self) -> list[str]:
        lines = [
            f"group {number}: servers {', '.join(group)}"
            for number, group in enumerate(self.groups(), 1)
        ]
        for step in self.steps():
            keys = ", ".join(scene.key for scene in step.scenes)
            if step.kind == "measure":
                lines.append(f"round {step.number + 1} of {keys}")
            else:
                on = f" on {', '.join(self.profiled)}" if step.kind == "profile" else ""
                lines.append(f"{step.kind} {keys}{on}")
        return lines


def run(
    plan: Plan, settings: Settings, record: Record, say: Say, spawn: Spawn = process.spawn
) -> None:
    """Measure everything in `plan`, on servers that `spawn` starts.

    What fails is noted in the visit's "failed", and a server that does not start or is no longer
    healthy is stopped; all others go on.

    Raises:
        OutOfTime: what was measured until then is in the record.
        ServerError: something failed; raised once everything else was measured.
    """
    deadline = time.monotonic() + plan.seconds if plan.seconds else None
    for group in plan.groups():
        with ExitStack() as stack:
            up = Up({}, record, say)
            stack.callback(up.stop)
            _start(up, group, plan, settings, spawn, deadline)
            for step in plan.steps():
                _in_time(deadline)
                _do(step, up, plan, deadline)
    if lost := record.visit["failed"]:
        raise ServerError("\n".join(f"{what}: {why}" for what, why in lost.items()))


@dataclass
class Up:
    """The servers of a group that are up, by mode."""

    servers: dict[str, Server]
    record: Record
    say: Say

    def lose(self, mode: str, error: Exception) -> None:
        """Go on without this one."""
        self._note(mode, error)
        self.servers.pop(mode).stop()

    def failed(self, what: str, mode: str, error: Exception) -> None:
        """`what` did not succeed on a server; go on without the server if it is no longer healthy.

        A load may also fail because it is no fair one ("the crowd stayed").
        """
        if _healthy(self.servers[mode]):
            self._note(f"{what} on {mode}", error)
        else:
            self.lose(mode, error)

    def _note(self, what: str, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        self.say(f"{what} failed: {why}"[:3000])
        self.record.visit["failed"][what] = why[-2000:]
        self.record.write()

    def stop(self) -> None:
        stop_all(self.servers.values())


def _start(
    up: Up,
    group: Sequence[str],
    plan: Plan,
    settings: Settings,
    spawn: Spawn,
    deadline: float | None,
) -> None:
    """The group's servers, ready. They start together, after those that measure themselves."""
    begun = time.monotonic()
    launches = {mode: launch(mode, settings) for mode in group}
    alone = [mode for mode in group if measures_itself(launches[mode])]
    together = [mode for mode in group if mode not in alone]
    for wave in [*([mode] for mode in alone), *([together] if together else [])]:
        up.say(f"starting {', '.join(wave)} …")
        for mode in wave:
            log = plan.logs / f"threshold-{mode}.log"
            up.servers[mode] = Server(launches[mode], log, spawn=spawn)
        for mode in wave:
            server = up.servers[mode]
            left = READY_SECONDS if deadline is None else deadline - time.monotonic()
            try:
                server.wait_ready(max(min(left, READY_SECONDS), 1.0))
                up.say(f"{mode} is ready after {time.monotonic() - begun:.0f} s")
                command = launches[mode].command(0)
                up.record.visit["servers"][mode] = {
                    "command": " ".join(command[command.index("-m") :]),
                    "environment": dict(launches[mode].environment),
                    **_about(server.url, up.record, alone=len(group) == 1),
                }
            except (ServerError, httpx.HTTPError) as error:
                up.lose(mode, error)
    up.record.write()


def _about(url: str, record: Record, alone: bool) -> dict[str, Any]:
    """Memory and threshold of a server; its provenance goes to the visit.

    What its graphs take is told from the free memory of the whole device: true only of a server
    that is `alone` there.
    """
    info = httpx.get(f"{url}/server_info", timeout=60).raise_for_status().json()
    record.visit["provenance"] = dict(info.get("spec_hardening", {}).get("provenance", {}))
    state = info["internal_states"][0]
    memory = state.get("memory_usage", {})
    threshold = state.get("batch_threshold") or {}
    graphs = memory.get("graph")
    found: dict[str, Any] = {"memory": memory, "kv_tokens": memory.get("token_capacity")}
    if threshold:
        found["threshold"] = threshold
    if alone and isinstance(graphs, dict):
        kept = sum(float(threshold.get(key, 0)) for key in ("ring_gb", "graph_gb"))
        found["state_gb"] = round(sum(v for v in graphs.values() if v) + kept, 4)
    return found


def _do(step: Step, up: Up, plan: Plan, deadline: float | None) -> None:
    if step.kind == "warm":
        _warm(step.scenes, up, deadline)
    elif step.kind == "profile":
        _profile(step.scenes, up, plan, deadline)
    else:
        _measure(step.scenes[0], step.number, up, deadline)


def _warm(scenes: Sequence[Scene], up: Up, deadline: float | None) -> None:
    """On all servers at once: nothing of it is measured."""

    def warm(server: Server) -> Exception | None:
        try:
            for scene in scenes:
                _in_time(deadline)
                scene.warm(server.url)
        except (LoadError, httpx.HTTPError) as error:
            return error
        return None

    pool = ThreadPoolExecutor(max(len(up.servers), 1))
    try:
        ended = dict(zip(up.servers, pool.map(warm, up.servers.values()), strict=True))
    except BaseException:
        up.stop()  # which ends the requests that the threads wait for
        raise
    finally:
        pool.shutdown()
    for mode, error in ended.items():
        if error is not None:
            up.failed("warm-up", mode, error)


def _measure(scene: Scene, number: int, up: Up, deadline: float | None) -> None:
    names = list(up.servers)
    turn = number % max(len(names), 1)
    said = []
    for mode in names[turn:] + names[:turn]:
        _in_time(deadline)
        try:
            found = scene.run(up.servers[mode].url)
        except (LoadError, httpx.HTTPError) as error:
            up.failed(f"{scene.key}, round {number + 1}", mode, error)
            continue
        up.record.add(scene.key, mode, number, found)
        said.append(f"{mode} {found.get('tok_s', found.get('accept_length'))}")
    up.say(f"{scene.key}, round {number + 1}: {', '.join(sorted(said))}")


def _profile(scenes: Sequence[Scene], up: Up, plan: Plan, deadline: float | None) -> None:
    for mode in plan.profiled:
        for scene in scenes:
            if mode not in up.servers or not isinstance(scene, Steady):
                continue
            _in_time(deadline)
            up.say(f"profile of {mode}, {scene.key}")
            try:
                found = kernels.profile(up.servers[mode].url, scene, plan.logs)
            except (LoadError, httpx.HTTPError) as error:
                up.failed(f"profile of {scene.key}", mode, error)
                continue
            up.record.visit["profiles"].setdefault(mode, {})[scene.key] = found
            up.record.write()


def _healthy(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/health", timeout=20).status_code == 200
    except httpx.HTTPError:
        return False


def _in_time(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise OutOfTime("the visit's time is over")
