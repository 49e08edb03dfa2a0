"""A traffic log: when requests came, and how many tokens they had."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

N = TypeVar("N", int, float)

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
    except UnicodeDecodeError as error:
        raise LogError(f"{path}: {error}; write the log as UTF-8") from error
    except (OSError, csv.Error) as error:
        raise LogError(f"{path}: {error}") from error
    if not found:
        raise LogError(f"{path}: no requests in it")
    first = min(request.arrival for request in found)
    shifted = [Request(r.arrival - first, r.prompt_tokens, r.output_tokens) for r in found]
    return sorted(shifted, key=lambda request: request.arrival)


def _entries(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="", encoding="utf-8") as file:
        if path.suffix == ".csv":
            for number, row in enumerate(csv.DictReader(file), 2):
                yield number, row
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except json.JSONDecodeError as error:
                    raise LogError(f"{path}:{number}: no JSON ({error})") from error


def _request(entry: Mapping[str, Any]) -> Request:
    for arrival, prompt, output, unit in _NAMES:
        if prompt in entry:
            seconds = _number(entry, arrival, _seconds, "write seconds, or an ISO-8601 time")
            remedy = "write a whole number of tokens, at least 1"
            return Request(
                seconds * unit,
                _number(entry, prompt, _count, remedy),
                _number(entry, output, _count, remedy),
            )
    raise KeyError("expected arrival, prompt_tokens and output_tokens")


def _number(entry: Mapping[str, Any], key: str, read: Callable[[Any], N], remedy: str) -> N:
    """One value; KeyError if it is missing, ValueError by key, value and remedy if it is wrong."""
    value = entry[key]
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{key} = {value!r}: {remedy}") from error


def _count(value: Any) -> int:
    count = int(value)  # OverflowError for what JSON reads 1e400 as
    if count < 1:
        raise ValueError(count)
    return count


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = datetime.fromisoformat(str(value)).timestamp()
    if not math.isfinite(seconds):  # the simulation would wait for it for ever
        raise ValueError(seconds)
    return seconds
