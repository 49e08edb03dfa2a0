"""`test/results/soak.json`: what each soak sent and found, and where it comes from.

    python -m soak.record merge soak.json RUN/soak.json...

One entry a run. A run of the same device, pair, settings and seed takes the place of its earlier
one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit import gpu_record

_SAME = ("device", "settings", "seed")


def provenance() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpus": gpu_record.gpus(),
        "cpu_cores": os.cpu_count(),
        **gpu_record.stamp(),
        "python": platform.python_version(),
        "versions": gpu_record.versions(),
    }


def read(file: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(file.read_text())["runs"] if file.is_file() else []
    return runs


def write(file: Path, runs: Sequence[dict[str, Any]]) -> None:
    """Adds runs to what the file holds."""
    kept = [old for old in read(file) if not any(_same(old, new) for new in runs)]
    both = [*kept, *runs]
    totals = {
        "requests": sum(run["requests"] for run in both),
        "differences": sum(len(run["differences"]) for run in both),
        "leaks": sum(len(run["leaks"]) for run in both),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**totals, "runs": both}, indent=1) + "\n")


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in _SAME)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=("merge",))
    parser.add_argument("output", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    write(options.output, [run for file in options.files for run in read(file)])
    print(f"{options.output}: {len(read(options.output))} runs")


if __name__ == "__main__":
    main()
