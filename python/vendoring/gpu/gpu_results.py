"""Writes `results.json` of a run of `run-gpu.sh`: `OUT SITE STATUS SECONDS`.

Says what ran on what: date, GPUs, driver, versions, pin and patch set, and each test's outcome out
of `OUT/tests.jsonl`. Standard library only; runs on the GPU machine.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = ("torch", "triton", "sglang-kernel", "flashinfer-python", "transformers")
_QUERY = "name,driver_version,memory.total,compute_cap,pci.bus_id"


def gpus() -> list[dict[str, str]]:
    """One entry for each GPU that the driver knows, none where there is no driver."""
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):  # a driver that hangs must not cost the results
        return []
    rows = [line.split(", ") for line in done.stdout.splitlines() if done.returncode == 0]
    return [dict(zip(_QUERY.split(","), row, strict=False)) for row in rows]


def versions(site: Path) -> dict[str, str]:
    """Versions of what is in `site`, else of what this Python has."""
    found = {}
    for name in PACKAGES:
        plain = next(site.glob(f"{name.replace('-', '_')}-*.dist-info"), None)
        if plain is not None:
            found[name] = plain.name.removesuffix(".dist-info").split("-")[1]
            continue
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def tests(report: Path) -> list[dict[str, Any]]:
    """Name, outcome, seconds and first words of the failure of each test, in order."""
    rows: dict[str, dict[str, Any]] = {}
    for line in report.read_text().splitlines() if report.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was killed while it wrote
            continue
        known = rows.get(entry["test"], {"outcome": "started"})
        if known["outcome"] in ("started", "passed"):  # a failure is not undone by a later phase
            rows[entry["test"]] = entry
    for row in rows.values():
        if row["outcome"] == "started":
            row["outcome"] = "cut-off"
    return list(rows.values())


def results(out: Path, site: Path, status: int, seconds: int) -> dict[str, Any]:
    rows = tests(out / "tests.jsonl")
    about = json.loads((HERE / "pack.json").read_text())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpus": gpus(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions(site),
        "pack": {key: value for key, value in about.items() if key != "delete"},
        "status": status,
        # pytest's 0 and 1 are runs that came to their end; all else was cut off or did not start.
        "partial": status not in (0, 1),
        "seconds": seconds,
        "counts": dict(Counter(row["outcome"] for row in rows)),
        "tests": rows,
    }


def main(arguments: list[str]) -> None:
    out, site = Path(arguments[0]), Path(arguments[1])
    data = results(out, site, int(arguments[2]), int(arguments[3]))
    (out / "results.json").write_text(json.dumps(data, indent=1) + "\n")
    names = ", ".join(gpu["name"] for gpu in data["gpus"]) or "no GPU"
    print(f"results: {data['counts']} on {names}, in {out}")


if __name__ == "__main__":
    main(sys.argv[1:])
