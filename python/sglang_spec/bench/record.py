"""The results file: visits with all their measurements, and the figures that follow from them.

Written anew after every measurement, so that what was measured is there whatever ends the program.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import figures

PACKAGES = ("sglang", "torch", "triton", "sglang-kernel", "flashinfer-python", "nvidia-nccl-cu13")


class RecordError(ValueError):
    """The results file is not one; the text says what is wrong with it."""


class Record:
    """One visit that is being added to the results at `path`."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._visits = read(path)
        self.visit: dict[str, Any] = {
            "number": 1 + max((visit["number"] for visit in self._visits), default=0),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "partial": True,
            "why_partial": "it is running, or was killed",
            "settings": dict(settings),
            "host": host(),
            "provenance": {},
            "servers": {},
            "samples": {},
            "profiles": {},
            "failed": {},
        }
        self._visits.append(self.visit)

    def add(self, scene: str, mode: str, number: int, found: Mapping[str, Any]) -> None:
        """One measurement: round `number` of `scene` on the server of `mode`."""
        of_mode = self.visit["samples"].setdefault(scene, {}).setdefault(mode, [])
        of_mode.append({"round": number, **found})
        self.write()

    def end(self, why_partial: str | None) -> None:
        """The visit is over; `why_partial` says what kept it from being whole, None if nothing."""
        self.visit["partial"] = why_partial is not None
        self.visit["why_partial"] = why_partial
        self.write()

    def write(self) -> None:
        write(self._path, self._visits)


def write(path: Path, visits: Sequence[Mapping[str, Any]]) -> None:
    """The file at `path`, whole or not at all: the figures of `visits`, and the visits."""
    content = {**figures.figures(visits), "visits": list(visits)}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(_compact(json.dumps(content, indent=1)) + "\n")
    os.replace(beside, path)


def read(path: Path) -> list[dict[str, Any]]:
    """The visits in the file at `path`; none if there is no file.

    Raises:
        RecordError: it holds something else.
    """
    try:
        visits = json.loads(path.read_text())["visits"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} holds no visits ({error!r}); name another file") from error
    return list(visits)


def host() -> dict[str, Any]:
    """Of this machine: accelerator, driver, processor, versions of what was measured."""
    return {
        "gpu": _nvidia("name"),
        "gpu_memory": _nvidia("memory.total"),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "driver": _nvidia("driver_version"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvidia(field: str) -> str | None:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return ", ".join(done.stdout.split("\n")).strip(", ") if done.returncode == 0 else None


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _compact(text: str) -> str:
    """Innermost objects and lists on one line each: a measurement is a line of the file."""
    return re.sub(
        r"[\[{][^\[\]{}]*[\]}]", lambda found: re.sub(r"\s*\n\s*", " ", found.group()), text
    )
