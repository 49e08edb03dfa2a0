"""What is wrong with a recipe: file, key, value and what to write instead."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One finding. `code` is its name for scripts and tests, `key` the dotted place in the file."""

    code: str
    file: str
    key: str
    value: Any
    remedy: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"[{self.code}] {self.file}: {self.key} = {self.value!r}: {self.remedy}"


class RecipeError(ValueError):
    """A recipe that cannot be served; `problems` has all that was found, in order."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))
