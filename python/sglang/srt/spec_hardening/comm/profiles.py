"""Reads `profiles.toml`: values with source and date, and where each of them applies."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("profiles.toml")


@dataclass(frozen=True)
class Value:
    """One variable that a rule sets; `effect` is what was published for it."""

    variable: str
    value: str
    why: str
    effect: str
    source: str
    date: str


@dataclass(frozen=True)
class Rule:
    name: str
    when: dict[str, Any]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class PcieIpc:
    """Where the PCIe-IPC all-reduce is chosen without a measurement; sizes in bytes."""

    capabilities: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    max_bytes: int
    why: str
    source: str
    date: str


@dataclass(frozen=True)
class Candidate:
    """An environment of NCCL that `comm-bench` measures."""

    name: str
    why: str
    source: str = ""
    date: str = ""
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Profiles:
    rules: tuple[Rule, ...]
    pcie_ipc: PcieIpc
    candidates: tuple[Candidate, ...]
    fused_by_default: frozenset[str]

    def values(self, **facts: Any) -> list[tuple[str, Value]]:
        """(rule, value) of every rule whose `when` holds; a later rule wins over an earlier one."""
        found: dict[str, tuple[str, Value]] = {}
        for rule in self.rules:
            if all(facts[key] == wanted for key, wanted in rule.when.items()):
                found.update({one.variable: (rule.name, one) for one in rule.values})
        return list(found.values())


@lru_cache(maxsize=1)
def read() -> Profiles:
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    ipc = content["pcie_ipc"]
    return Profiles(
        rules=tuple(
            Rule(rule["name"], rule["when"], tuple(Value(**one) for one in rule["set"]))
            for rule in content["rule"]
        ),
        pcie_ipc=PcieIpc(
            **{
                **ipc,
                "capabilities": tuple(tuple(one) for one in ipc["capabilities"]),
                "ranks": tuple(ipc["ranks"]),
            }
        ),
        candidates=tuple(Candidate(**one) for one in content["candidate"]),
        fused_by_default=frozenset(content["fused_by_default"]),
    )
