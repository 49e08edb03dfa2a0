"""A traffic log: when requests came, and how many tokens they had."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

# (arrival, prompt tokens, output tokens, seconds in a unit of arrival): our own names, the Mooncake
# traces' and the Azure LLM inference traces'.
_NAMES = (
    ("arrival", "prompt_tokens", "output_tokens", 1.0),
    ("timestamp", "input_length", "output_length", 1e-3),
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens", 1.0),
)


class LogError(ValueError):
    """A log that cannot be read; the text names file, line and what is wrong."""


@dataclass(frozen=True)
class Request:
    """`arrival` in seconds after the first one."""

    arrival: float
    prompt_tokens: int
    output_tokens: int


def read(path: Path) -> list[Request]:
    """The requests of a JSON-lines or CSV file (by its suffix), by arrival.

    Arrivals are seconds or ISO-8601 times (Mooncake's are milliseconds).

    Raises:
        LogError: an entry that is no request, or none at all.
    """
    found = []
    try:
        for number, entry in _entries(path):
            try:
                found.append(_request(entry))
            except (KeyError, TypeError, ValueError) as error:
                raise LogError(f"{path}:{number}: no request ({error})") from error
    except (OSError, json.JSONDecodeError) as error:
        raise LogError(f"{path}: {error}") from error
    if not found:
        raise LogError(f"{path}: no requests in it")
    first = min(request.arrival for request in found)
    shifted = [Request(r.arrival - first, r.prompt_tokens, r.output_tokens) for r in found]
    return sorted(shifted, key=lambda request: request.arrival)


def _entries(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="") as file:
        if path.suffix == ".csv":
            for number, row in enumerate(csv.DictReader(file), 2):
                yield number, row
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, json.loads(line)


def _request(entry: Mapping[str, Any]) -> Request:
    for arrival, prompt, output, unit in _NAMES:
        if prompt in entry:
            request = Request(
                _seconds(entry[arrival]) * unit, int(entry[prompt]), int(entry[output])
            )
            if request.prompt_tokens < 1 or request.output_tokens < 1:
                raise ValueError("a prompt and an answer have at least one token")
            return request
    raise KeyError("expected arrival, prompt_tokens and output_tokens")


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        return datetime.fromisoformat(str(value)).timestamp()
