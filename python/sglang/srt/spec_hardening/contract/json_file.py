"""JSON as the contract reads it: what Python cannot hold, or would decide alone, is an error.

Of a key that stands twice in one object every reader takes the last, and a person the first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class JsonError(ValueError):
    """A text that is no JSON, or one with two meanings; the message says why."""


def read_json(path: Path) -> Any:
    """The value in `path`.

    Raises:
        JsonError: it is not UTF-8, not JSON, or holds a key twice with different values.
        OSError: it cannot be read, or is no regular file (a pipe would be waited for for ever).
    """
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file")
    return parse(path.read_bytes())


def parse(data: bytes) -> Any:
    """The value of UTF-8 bytes; raises JsonError."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise JsonError("it begins with a byte order mark; save it as UTF-8 without one")
    try:
        return json.loads(data.decode(), object_pairs_hook=_object)
    except JsonError:
        raise
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:  # of the syntax, the encoding, or an integer of 5,000 digits
        raise JsonError(str(error)) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise JsonError(
                f"the key {key!r} stands twice in one object; keep the one that is meant"
            )
        found[key] = value
    return found
