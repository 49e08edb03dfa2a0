"""What the contract found: slots, problems that refuse the pair, warnings that do not, notes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Slot:
    """One block of `fc`'s input: slot 0 is the first `target hidden size` columns.

    `loop_index` is the position in upstream's layer loop before which the state is taken; the
    index equal to the number of layers is the boundary after the last layer.
    """

    slot: int
    takes: str
    loop_index: int

    def to_json(self) -> dict[str, Any]:
        return {"slot": self.slot, "takes": self.takes, "loop_index": self.loop_index}


@dataclass(frozen=True)
class Problem:
    """One finding. `file` and `key` say where, `value` what stands there, `remedy` what to do."""

    code: str
    file: str
    key: str
    value: Any
    remedy: str

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "file": self.file,
            "key": self.key,
            "value": _json_value(self.value),
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 120 else shown[:117] + "..."
        return f"[{self.code}] {self.file}: {self.key} = {shown}: {self.remedy}"


def _json_value(value: Any) -> Any:
    """JSON has no NaN and no Infinity, which a config read by Python may hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _json_value(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(held) for held in value]
    return value


@dataclass(frozen=True)
class Report:
    """The whole answer. `notes` state what was decided where nothing had to be refused."""

    slots: tuple[Slot, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return not self.problems

    def strict(self) -> Report:
        """The same report with every warning made a problem."""
        return Report(self.slots, self.problems + self.warnings, (), self.notes)

    def to_json(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "slots": [slot.to_json() for slot in self.slots],
            "problems": [problem.to_json() for problem in self.problems],
            "warnings": [warning.to_json() for warning in self.warnings],
        }

    def error_text(self) -> str:
        count = len(self.problems)
        head = f"the draft does not fit the target: {count} problem{'s' * (count != 1)}"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems)])


class ContractError(ValueError):
    """A pair that must not be served; the text holds every problem."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.error_text())
        self.report = report


@dataclass
class Findings:
    """Where the checks put what they find, in the order in which they find it."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def refuse(self, code: str, file: Path | str, key: str, value: Any, remedy: str) -> None:
        self.problems.append(Problem(code, str(file), key, value, remedy))

    def warn(self, code: str, file: Path | str, key: str, value: Any, remedy: str) -> None:
        self.warnings.append(Problem(code, str(file), key, value, remedy))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def has(self, *codes: str) -> bool:
        return any(problem.code in codes for problem in self.problems)

    def report(self, slots: Iterable[Slot] = ()) -> Report:
        return Report(tuple(slots), tuple(self.problems), tuple(self.warnings), tuple(self.notes))
