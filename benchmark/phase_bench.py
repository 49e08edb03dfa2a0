"""Loads of one server with its watch on and off in turn: cycles a second, milliseconds by phase.

Used by `phases.py`; shape and units of what is kept stand at `Bench`.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
from sglang_spec.bench import load

PROGRAM = Path(__file__).with_name("watch_switch.py")


class Bench:
    """Measures one server; `samples[requests][state]` are cycles per second by round.

    `tok_s` are its tokens per second likewise; `alone` has milliseconds of the cycles of one
    request by phase.
    """

    def __init__(self, url: str, switch: Path, shape: Any, context: int, tokens: int) -> None:
        self._url, self._switch = url, switch
        self._shape, self._context, self._tokens = shape, context, tokens
        self.samples: dict[int, dict[str, dict[int, float]]] = defaultdict(
            lambda: {"on": {}, "off": {}}
        )
        self.tok_s: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"on": [], "off": []})
        self.sum_errors: list[float] = []
        self.cycles = 0
        self.alone: dict[str, float] = defaultdict(float)

    def warm(self, requests: int) -> None:
        """Nothing is compiled or captured any more after it."""
        load.burst(self._url, self._prompts(requests, 0), self._tokens)

    def measure(self, requests: int, number: int) -> None:
        """One round: on and off, in an order that alternates."""
        for state in ("on", "off") if number % 2 else ("off", "on"):
            self._set(state)
            before = self._phases()
            burst = load.burst(self._url, self._prompts(requests, number), self._tokens)
            self.samples[requests][state][number] = 1 / outside(burst)
            self.tok_s[requests][state].append(burst.tok_s)
            after = self._phases()
            if (watched(after) > watched(before)) != (state == "on"):
                raise load.LoadError(f"{PROGRAM.name} does not switch: {state} changes nothing")
            if state == "on" and requests == 1:
                cycles, spent = between(before, after)
                self.cycles += cycles
                for phase, milliseconds in spent.items():
                    self.alone[phase] += milliseconds
                inside = sum(spent.values()) / cycles / 1e3
                self.sum_errors.append(inside / outside(burst) - 1)

    @property
    def complete(self) -> bool:
        """Whether there are two rounds of everything, from which figures can be made."""
        sizes = [len(both) for one in self.samples.values() for both in one.values()]
        return min(sizes, default=0) > 1

    def _prompts(self, requests: int, number: int) -> list[list[int]]:
        return load.prompts(
            requests, self._context, self._shape.tokens, self._shape.first, seed=number
        )

    def _set(self, state: str) -> None:
        if state == "off":
            self._switch.touch()
        else:
            self._switch.unlink(missing_ok=True)
        # The switch takes effect with the next cycle; the others are warm after it.
        asked = load.prompts(1, 16, self._shape.tokens, self._shape.first)
        load.burst(self._url, asked, 24)

    def _phases(self) -> dict[str, Any]:
        state = httpx.get(f"{self._url}/server_info", timeout=60).json()["internal_states"][0]
        phases: dict[str, Any] = state.get("speculation", {}).get("phases", {})
        return phases


def watched(phases: dict[str, Any]) -> int:
    """Cycles of all bands."""
    return sum(band["cycles"] for band in phases.values())


def between(before: dict[str, Any], after: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """Cycles of one request between two looks, and milliseconds of all of them by phase."""
    none: dict[str, Any] = {"cycles": 0, "phases_ms": {}}
    old, new = before.get("1", none), after["1"]
    spent = {
        phase: new["cycles"] * ms - old["cycles"] * old["phases_ms"].get(phase, 0.0)
        for phase, ms in new["phases_ms"].items()
    }
    return new["cycles"] - old["cycles"], spent


def outside(burst: load.Burst) -> float:
    """Seconds of a cycle as the client sees it, while all requests are in it."""
    assert burst.cycles, "a server that speculates"
    return burst.window / burst.cycles
