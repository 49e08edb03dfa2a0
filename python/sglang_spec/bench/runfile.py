"""The raw results of a run: JSON lines, one appended and flushed at a time.

Whatever ends the program, the file is valid and says whether it is whole: only a run that got to
its end has a last line `{"kind": "end", "partial": false}`. Lines are of these kinds:
    run          first: settings, corpus, host, pin, argv
    side         a server that was started or asked: flags, facts
    answers      the reference's token ids of a cell
    measurement  one side, cell and round
    failed       a side that could not be measured, and why
    end          partial or not, and why
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FORMAT = 1
Key = tuple[str, str, int, int]  # side, cell, group, round


class RunFileError(ValueError):
    """The file is no run, or one that cannot be gone on with; the text says why."""


@dataclass
class Run:
    """What a file holds. `sides` by name, `answers` by cell and request."""

    path: Path
    header: dict[str, Any]
    sides: dict[str, dict[str, Any]] = field(default_factory=dict)
    measurements: dict[Key, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    end: dict[str, Any] | None = None

    @property
    def partial(self) -> str | None:
        """Why the run is not whole, or None."""
        if self.end is None:
            return "it was killed, or is running"
        return str(self.end["why"]) if self.end["partial"] else None

    def take(self, entry: dict[str, Any]) -> None:
        match entry["kind"]:
            case "side":
                self.sides[entry["side"]] = entry
            case "answers":
                told = {int(number): tokens for number, tokens in entry["tokens"].items()}
                self.answers[entry["cell"]] = told
            case "measurement":
                self.measurements[key(entry)] = entry
                self.failed.pop(entry["side"], None)
            case "failed":
                self.failed[entry["side"]] = entry["why"]
            case "end":
                self.end = entry
            case other:
                raise RunFileError(f"{self.path}: a line of kind {other!r}")


def require(run: Run, names: Sequence[str]) -> None:
    """RunFileError if the first line lacks one of `names` ("settings.sides" is one inside)."""
    for name in names:
        found: Any = run.header
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            raise RunFileError(
                f"{run.path}:1: {name} is missing; name the run.jsonl that `bench`, `sweep` or "
                "`canary` wrote"
            )


def key(entry: Mapping[str, Any]) -> Key:
    return entry["side"], entry["cell"], entry["group"], entry["round"]


def read(path: Path) -> Run:
    """The run at `path`. A last line that a kill cut short is left out.

    Raises:
        RunFileError: it is none.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[Run, int]:
    """The run, and the bytes of its whole lines."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunFileError(f"{path}: {error.strerror}") from error
    whole = content[: content.rfind(b"\n") + 1]
    try:
        entries = [json.loads(line) for line in whole.splitlines()]
        header, *rest = entries
        if header["kind"] != "run" or header["format"] != FORMAT:
            raise RunFileError(f"{path}: not a run of format {FORMAT}")
        if not isinstance(header.get("settings"), dict):
            raise RunFileError(
                f"{path}:1: settings = {header.get('settings')!r}: an object is needed; measure "
                "anew, or name the run.jsonl that `bench`, `sweep` or `canary` wrote"
            )
        run = Run(path, header)
        for entry in rest:
            run.end = None  # lines after an end: it was resumed
            run.take(entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, RunFileError):
            raise
        raise RunFileError(f"{path} is no run file ({error!r})") from error
    return run, len(whole)


class Recorder:
    """Appends to a run file. `run` is what the file holds at each moment."""

    def __init__(self, run: Run, size: int) -> None:
        self.run = run
        self._file = run.path.open("r+b")
        self._file.truncate(size)
        self._file.seek(size)

    @classmethod
    def begin(cls, path: Path, header: Mapping[str, Any]) -> Recorder:
        """A new file; RunFileError if there is one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"kind": "run", "format": FORMAT, "date": _now(), **header}
        line = _line(entry)
        if _never_begun(path):
            path.unlink()
        try:
            with path.open("xb") as file:
                file.write(line)
        except FileExistsError:
            raise RunFileError(
                f"{path} exists; go on with it (--resume) or name another --output"
            ) from None
        return cls(Run(path, json.loads(line)), len(line))

    @classmethod
    def resume(cls, path: Path, header: Mapping[str, Any]) -> Recorder:
        """Go on with the file at `path`, made with the same settings; begin it if there is none.

        Raises:
            RunFileError: it was made with others; the text names them.
        """
        if not path.exists() or _never_begun(path):
            return cls.begin(path, header)
        run, size = _read(path)
        asked, found = json.loads(json.dumps(header["settings"])), run.header["settings"]
        changed = [name for name in {**asked, **found} if asked.get(name) != found.get(name)]
        if changed:
            raise RunFileError(
                f"{path} was made with another {', '.join(changed)}; name another --output"
            )
        return cls(run, size)

    def add(self, kind: str, **entry: Any) -> None:
        made = {"kind": kind, "date": _now(), **entry}
        line = _line(made)
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.run.end = None
        self.run.take(json.loads(line))

    def finish(self, why_partial: str | None) -> None:
        """The last line; `why_partial` is None for a run that is whole."""
        self.add("end", partial=why_partial is not None, why=why_partial)
        self._file.close()


def _never_begun(path: Path) -> bool:
    """Whether a kill cut off the very first line of a run, so that nothing is in the file."""
    if not path.is_file() or path.stat().st_size > 2**20:
        return False
    content, opening = path.read_bytes(), b'{"kind":"run"'
    begun = content.startswith(opening) or opening.startswith(content)
    return begun and b"\n" not in content


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
