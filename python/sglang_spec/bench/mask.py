"""Command lines without the secrets in them, for files that are shown to others."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"
# --…-tokens, and so many per token, are counts.
_NAME = r"--(?:[\w-]*(?:key|secret|password)[\w-]*|[\w-]*(?<!per[-_])(?<!first[-_])token)"
_FLAG = re.compile(_NAME, re.IGNORECASE)
_VALUE = r"""(?:"[^"]*"|'[^']*'|(?!--)\S)+"""
_TO_NEXT_FLAG = r"(?:(?!\s+--).)+"  # after `=`, where a word of its own may hold blanks
_INSIDE = re.compile(
    rf"(?<!\S)({_NAME})(?:(=){_TO_NEXT_FLAG}|(\s+)(?!--){_VALUE})", re.IGNORECASE | re.DOTALL
)
_VARIABLE = re.compile(r"KEY|SECRET|PASSWORD|TOKEN$", re.IGNORECASE)


def words(given: Sequence[str]) -> list[str]:
    """`given` with the value after any flag of a secret masked, in a word of its own or after `=`.

    A word may hold a whole command line (`canary` takes such): it is masked inside too.
    """
    told: list[str] = []
    for word in given:
        secret = bool(told) and bool(_FLAG.fullmatch(told[-1])) and not word.startswith("--")
        told.append(MASK if secret else text(word))
    return told


def text(line: str) -> str:
    """`line`, a command line as it is typed, with the same masked."""
    return _INSIDE.sub(lambda found: f"{found[1]}{found[2] or found[3]}{MASK}", line)


def variable(name: str, value: str) -> str:
    """NAME=VALUE, the value masked if the name is that of a secret."""
    return f"{name}={MASK if _VARIABLE.search(name) else value}"
