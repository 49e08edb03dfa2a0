"""What looks like a secret, by name or form: refused anywhere in a recipe, shown nowhere."""

from __future__ import annotations

import re
from typing import Any

from .problem import Problem

_NAME = re.compile(
    r"api[-_]?key|token(?!s|iz)|secret|passw|passphrase|credential|(private|access)[-_]?key"
    r"|(^|[-_])key$|(^|[-_])auth$",
    re.IGNORECASE,
)
_IN_A_URL = re.compile(r"://[^/\s@]+:[^/\s@]+@")
HIDDEN = "…"
REMEDY = "no secret in a recipe; give listen.secrets, a file with `api-key: …`"


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is likely to be a secret. Counts of tokens are none."""
    return _NAME.search(name) is not None


def holds_password(value: Any) -> bool:
    """Whether a value is, or has among its values, a URL with a password in it."""
    if isinstance(value, str):
        return _IN_A_URL.search(value) is not None
    if isinstance(value, dict):
        return any(map(holds_password, value.values()))
    return isinstance(value, (list, tuple)) and any(map(holds_password, value))


def shown(value: Any) -> Any:
    """A value as an error may repeat it: one that holds a secret is not."""
    return HIDDEN if holds_password(value) or _names_one(value) else value


def _names_one(value: Any) -> bool:
    """Whether something in a table or a list of tables goes by the name of a secret."""
    if isinstance(value, dict):
        return any(is_secret_name(name) or _names_one(one) for name, one in value.items())
    return isinstance(value, (list, tuple)) and any(map(_names_one, value))


def given(file: str, path: str) -> Problem:
    """The problem of a secret that is written where it must not be."""
    return Problem("secret", file, path, HIDDEN, REMEDY)
