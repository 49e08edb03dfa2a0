"""`comm-bench`: all-reduce at decode sizes over the candidates, in turns, on this machine.

NCCL reads its environment once, so every environment has processes of its own. All are started
together and stay up; round by round each measures in its turn, the first one another every round.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from . import record
from .choose import KIB, Choice, choose
from .team import Late, Team, TeamError

DECODE_SIZES = tuple(4 * KIB << step for step in range(10))  # 4 KiB to 2 MiB
PREFILL_SIZE = 32 * KIB * KIB
# Set-ups: what stands for which host, and what plain SGLang would use there.
NO_PEERS = {"NCCL_P2P_DISABLE": "1"}
ROUND_S = 60.0
OVER = "its time was over"


@dataclass(frozen=True)
class Settings:
    ranks: int
    device: str
    sizes: tuple[int, ...]
    rounds: int
    start_s: float
    only: tuple[str, ...] = ()
    setups: tuple[str, ...] = ("as-is", "no-peers")
    end: float = math.inf  # on the clock of `time.monotonic`: no round begins later

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end


def run(settings: Settings, say: Any = print) -> dict[str, Any]:
    """Both set-ups, one after the other; the content of `benchmark/results/comm.json`.

    A set-up that fails, is interrupted or has no time left costs only itself: `partial` then says
    which and why. There is also the one whose rounds the end of the time made fewer.

    Raises:
        TeamError: none was measured.
    """
    gather: Any = import_module("sglang_spec.hardening.comm.gather")
    facts = gather.gather(test_peers=settings.device == "cuda")
    setups: dict[str, Any] = {}
    missing: dict[str, str] = {}
    fewer: dict[str, str] = {}
    for name in settings.setups:
        variables = NO_PEERS if name == "no-peers" else {}
        say(f"comm-bench: set-up {name}, {settings.ranks} ranks", file=sys.stderr)
        try:
            if settings.over:
                raise TeamError("it was not begun")
            setups[name] = _setup(name, variables, settings, facts, say)
            if (had := setups[name]["rounds"]) < settings.rounds:
                fewer[name] = f"{OVER} after {had} of {settings.rounds} rounds"
        except TeamError as error:
            missing[name] = f"{OVER}: {error}" if settings.over else str(error)
        except KeyboardInterrupt:
            left = [one for one in settings.setups if one not in {*setups, *missing}]
            missing |= dict.fromkeys(left, "interrupted")
            break
    if not setups:
        raise TeamError("; ".join(dict.fromkeys(missing.values())))
    return {
        "provenance": record.provenance(settings.ranks, settings.rounds, settings.device, facts),
        "partial": missing | fewer,
        "facts": facts.to_dict(),
        "setups": setups,
        "decode_ratio": {name: one["chosen"]["ratio"] for name, one in setups.items()},
    }


def candidates(setup: str, facts: Any, ranks: int) -> dict[str, dict[str, str]]:
    """name -> NCCL's environment, "plain" first; equal environments once.

    "pcie_ipc" has plain's environment and ranks of its own: a kernel that cannot be built or hangs
    takes nothing else with it.
    """
    core: Any = import_module("sglang_spec.hardening.comm.core")
    profiles: Any = import_module("sglang_spec.hardening.comm.profiles").read()
    found: dict[str, dict[str, str]] = {"plain": {}}
    for one in profiles.candidates:
        variables = dict(one.variables)
        if one.name == "nccl-plan":
            plan = core.decide(facts, core.Settings(tp_size=ranks), {}, apply=True)
            variables = {k: v for k, v in plan.to_set().items() if k.startswith("NCCL_")}
        if setup == "no-peers":
            variables.pop("NCCL_P2P_LEVEL", None)
        if variables not in found.values():
            found[one.name] = variables
    found["pcie_ipc"] = {}
    return found


def _setup(
    name: str, variables: Mapping[str, str], settings: Settings, facts: Any, say: Any
) -> dict[str, Any]:
    # A host without NVLink and with more than two GPUs has no custom all-reduce in plain SGLang.
    custom = name == "as-is"
    sizes = [*settings.sizes, *([PREFILL_SIZE] if settings.device == "cuda" else [])]
    spec = {"world": settings.ranks, "device": settings.device, "sizes": sizes}
    teams: list[Team] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for candidate, extra in candidates(name, facts, settings.ranks).items():
                if settings.only and candidate not in settings.only:
                    continue
                plain, ipc = candidate == "plain", candidate == "pcie_ipc"
                if ipc and settings.device != "cuda":
                    continue
                content = {**spec, "custom": custom and plain, "only_pcie_ipc": ipc}
                place = Path(folder) / candidate
                teams.append(Team(candidate, {**variables, **extra}, content, place))
            built = min(time.monotonic() + settings.start_s, settings.end)
            about, failures = _wait(teams, built, say)
            if "plain" not in about:
                raise TeamError(failures["plain"])
            ready = [one for one in teams if one.name in about]
            rounds = _rounds(ready, settings.rounds, failures, settings.end)
        finally:
            for team in teams:
                team.end()
    table = _table(rounds)
    notes = {key: value for one in about.values() for key, value in one["notes"].items()}
    notes["plain"] = about["plain"]["notes"]["plain"]
    custom_is_plain = notes["plain"] not in ("NCCL", "gloo")
    chosen = choose(table, peers=name == "as-is", custom_is_plain=custom_is_plain)
    return {
        "environment": dict(variables),
        "plain": notes["plain"],
        "notes": notes,
        "nccl": about["plain"]["nccl"],
        "failed": failures,
        "rounds": len(rounds),
        "candidates": {one.name: one.variables for one in teams},
        "microseconds": _spread(table),
        "chosen": _described(chosen),
        # The kernels of PCIe-IPC over whatever joins these GPUs: on an NVLink host no PCIe figure.
        "with_peer_kernels": _described(choose(table, True, custom_is_plain)),
    }


def _wait(
    teams: list[Team], deadline: float, say: Any
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """name -> what it built, and name -> why it cannot take part."""
    about, failures = {}, {}
    for team in teams:
        try:
            about[team.name] = team.ready(deadline)
        except TeamError as error:
            failures[team.name] = str(error)
            team.end()
        told = failures.get(team.name) or about[team.name]["notes"]
        say(f"comm-bench: {team.name}: {told}", file=sys.stderr)
    return about, failures


def _rounds(
    teams: list[Team], rounds: int, failures: dict[str, str], end: float = math.inf
) -> list[dict[str, dict[str, dict[int, float]]]]:
    """Round -> team -> library -> size -> microseconds; a first round warms up and is left out.

    A team that ends on the way is left out of all rounds, with its reason in `failures`. At `end`
    the round that is not whole is left out.

    Raises:
        TeamError: it was "plain", which all others are measured against, or no round was whole.
    """
    found: list[dict[str, dict[str, dict[int, float]]]] = []
    for number in range(rounds + 1):
        order = teams[number % len(teams) :] + teams[: number % len(teams)]
        found.append({})
        for team in order:
            if team.name in failures:
                continue
            left = end - time.monotonic()
            try:
                found[-1][team.name] = team.round(min(ROUND_S, left))
            except TeamError as error:
                if isinstance(error, Late) and left < ROUND_S:
                    found.pop()
                    break
                if team.name == "plain":
                    raise
                failures[team.name] = str(error)
        if time.monotonic() >= end:
            break
    if len(found) < 2:
        raise TeamError("no round was measured")
    return [{k: v for k, v in one.items() if k not in failures} for one in found[1:]]


def _table(
    rounds: list[dict[str, dict[str, dict[int, float]]]],
) -> dict[str, dict[int, list[float]]]:
    """candidate -> size -> microseconds of each round."""
    table: dict[str, dict[int, list[float]]] = {}
    for one in rounds:
        for team, libraries in one.items():
            for library, sizes in libraries.items():
                name = library if team in ("plain", "pcie_ipc") else team
                for size, microseconds in sizes.items():
                    table.setdefault(name, {}).setdefault(size, []).append(microseconds)
    return table


def _spread(table: Mapping[str, Mapping[int, list[float]]]) -> dict[str, dict[str, Any]]:
    """size -> candidate -> median, low and high of the rounds, in microseconds."""
    found: dict[str, dict[str, Any]] = {}
    for name, sizes in table.items():
        for size, times in sizes.items():
            found.setdefault(str(size), {})[name] = {
                "median": round(median(times), 3),
                "low": round(min(times), 3),
                "high": round(max(times), 3),
                "rounds": len(times),
            }
    return found


def _described(choice: Choice) -> dict[str, Any]:
    content = {**vars(choice), "ratio": round(choice.ratio, 4), "worst": round(choice.worst, 4)}
    return {**content, "by_size": {str(size): name for size, name in choice.by_size.items()}}
