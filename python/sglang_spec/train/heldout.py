"""Held-out prompts with the target's greedy answers. Needs no torch.

{"kind": "chat", "prompt_ids": [...], "greedy_answer_ids": [...]}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from . import loops


@dataclass(frozen=True)
class Row:
    """One held-out prompt."""

    kind: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        return (*self.prompt, *self.answer)

    @property
    def loops(self) -> bool:
        return loops.loops(self.answer)


class HeldOutError(ValueError):
    """A file that holds no such prompts."""


def read(path: Path) -> list[Row]:
    """Every row of the file.

    Raises:
        HeldOutError: it cannot be read, or a line is none.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise HeldOutError(f"{path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            rows.append(Row(one["kind"], tuple(one["prompt_ids"]), tuple(one["greedy_answer_ids"])))
        except (ValueError, KeyError, TypeError) as error:
            raise HeldOutError(f"{path}:{number}: no held-out prompt ({error!r})") from error
    return rows
