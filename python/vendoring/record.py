"""Kept results of slow runs: rows of JSON, without a trace of the machine that made them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from .errors import VendoringError, text_of

_WORDS = 160  # characters of a failure that a table shows
_PATH = re.compile(r"(?<![\w.:/…])/([^\s/'\"`()\[\]{},:;]+)(?:/[^\s/'\"`()\[\]{},:;]*)*")


class Row(Protocol):
    """A frozen dataclass whose fields are texts, numbers and tuples of texts."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_Row = TypeVar("_Row", bound=Row)


def shortened(text: str) -> str:
    """One line of a failure for the table. Of a path on this machine only its last part stays:
    where somebody keeps a checkout or temporary files is noise that differs from run to run. A path
    is one of this machine if its first folder exists, so that a route such as /v1/models stays.
    """

    def last_part(found: re.Match[str]) -> str:
        if not Path("/", found[1]).exists():
            return found[0]
        last = found[0].rstrip("/").rsplit("/", 1)[1]
        return "…" if last == found[1] else f"…/{last}"

    return _PATH.sub(last_part, " ".join(text.split()))[:_WORDS]


def read_rows(path: Path, key: str, kind: type[_Row]) -> list[_Row]:
    """The rows that `path` keeps under `key`, none where there is no file."""
    try:
        data = json.loads(text_of(path))
        return [_row(entry, kind) for entry in data[key]]
    except FileNotFoundError:
        return []
    except (json.JSONDecodeError, KeyError, TypeError) as fault:
        raise VendoringError(
            "the record of earlier runs cannot be read",
            file=str(path),
            value=str(fault),
            remedy="remove it and run everything again",
        ) from None


def write_rows(path: Path, key: str, rows: Sequence[Row]) -> None:
    """Makes `path` hold exactly these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {key: [asdict(row) for row in rows]}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _row(entry: dict[str, Any], kind: type[_Row]) -> _Row:
    known = {field.name: entry[field.name] for field in fields(kind)}
    known = {
        name: tuple(value) if isinstance(value, list) else value for name, value in known.items()
    }
    known["detail"] = shortened(known["detail"])
    return kind(**known)
