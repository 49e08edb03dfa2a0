"""A plan file: what `comm-bench` measured on one machine and chose there. JSON; no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .facts import Facts

SCHEMA = 1


class MeasuredError(ValueError):
    """A plan file that cannot be used here: file, key, value, remedy."""


@dataclass(frozen=True)
class Measured:
    """variables: what NCCL's environment should hold. custom_all_reduce: False switches it off.
    pcie_ipc_bytes: the largest message that PCIe-IPC won, 0 if it won none.
    why: one sentence with the figures, for the table.
    """

    path: str
    tp_size: int
    machine: dict[str, Any]
    variables: dict[str, str] = field(default_factory=dict)
    custom_all_reduce: bool = True
    pcie_ipc_bytes: int = 0
    why: str = ""
    date: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Measured:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MeasuredError(f"--speculative-comm-plan {path}: {error}") from error
        remedy = "write the file with `sglang-spec comm-bench --plan FILE`"
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise MeasuredError(f"--speculative-comm-plan {path}: schema: not {SCHEMA}; {remedy}")
        content.pop("schema")
        try:
            plan = cls(path=str(path), **content)
        except TypeError as error:
            raise MeasuredError(f"--speculative-comm-plan {path}: {error}; {remedy}") from error
        wrong = [key for key, value in plan.variables.items() if not isinstance(value, str)]
        if wrong:
            raise MeasuredError(f"--speculative-comm-plan {path}: variables: {wrong} are not text")
        return plan

    def dump(self) -> str:
        content = {key: value for key, value in vars(self).items() if key != "path"}
        return json.dumps({"schema": SCHEMA, **content}, indent=2) + "\n"

    def misfit(self, facts: Facts, tp_size: int) -> str:
        """Why the file was not measured on this machine for this launch; empty if it was."""
        if self.tp_size != tp_size:
            return f"tp_size: measured with {self.tp_size} ranks, this launch has {tp_size}"
        here = facts.machine(tp_size)
        for key, value in self.machine.items():
            if here.get(key) != value:
                return f"machine.{key}: measured on {value}, here are {here.get(key)}"
        return ""
