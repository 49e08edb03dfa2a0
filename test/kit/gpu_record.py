"""The record of GPU runs, `test/results/gpu.json`, made from pytest's JUnit files.

    python -m kit.gpu_record write gpu.json junit.xml...      on the GPU machine, after a run
    python -m kit.gpu_record merge gpu.json RUN/gpu.json...   one record out of several runs

A record says which tests passed, which failed and with what, which were skipped and why, and for
each run where it comes from: date, GPUs, driver, versions, pin, patch-set hash. A test that several
runs had counts as failed if it failed in one, as passed if it passed in one and failed in none:
what one GPU skips may be what two GPUs passed. Standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

PACKAGES = ("torch", "triton", "sglang-kernel", "flashinfer-python", "transformers")
_QUERY = ("name", "driver_version", "memory.total", "compute_cap")
FAILED, PASSED, SKIPPED = "failed", "passed", "skipped"
_RANK = {FAILED: 0, PASSED: 1, SKIPPED: 2}


class RecordError(RuntimeError):
    """A file that is no JUnit result or no record; the text names it."""


@dataclass(frozen=True)
class Result:
    """One test's outcome; `why` is the reason of a skip or the first words of a failure."""

    test: str
    outcome: str
    seconds: float
    why: str = ""
    properties: tuple[tuple[str, str], ...] = ()


def of_junit(file: Path) -> list[Result]:
    """All tests of a JUnit file, in order.

    Raises:
        RecordError: the file is absent, or is cut off or otherwise not XML.
    """
    try:
        root = ElementTree.parse(file).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise RecordError(f"{file}: not a JUnit result ({error})") from error
    return [_result(case) for case in root.iter("testcase")]


def _result(case: ElementTree.Element) -> Result:
    outcome, why = PASSED, ""
    for child in case:
        if child.tag in ("failure", "error"):
            outcome, why = FAILED, child.get("message") or child.text or child.tag
            break
        if child.tag == "skipped":
            outcome, why = SKIPPED, child.get("message") or child.text or "no reason given"
    module = (case.get("classname") or "").replace(".", "/")
    return Result(
        test=f"{module}.py::{case.get('name')}",
        outcome=outcome,
        seconds=float(case.get("time") or 0),
        why=" ".join(why.split())[:300],
        properties=tuple(
            (str(found.get("name")), str(found.get("value"))) for found in case.iter("property")
        ),
    )


def worst(results: Sequence[Result]) -> list[Result]:
    """One result a test, sorted by name: failed before passed before skipped."""
    chosen: dict[str, Result] = {}
    for result in results:
        known = chosen.get(result.test)
        if known is None or _RANK[result.outcome] < _RANK[known.outcome]:
            chosen[result.test] = result
    return [chosen[name] for name in sorted(chosen)]


def gpus() -> list[dict[str, str]]:
    """One entry for each GPU that the driver knows; empty where there is none."""
    return ask_gpus(_QUERY)


def ask_gpus(names: Sequence[str]) -> list[dict[str, str]]:
    """What nvidia-smi says of each GPU, by the names of its query."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return []
    rows = [line.split(", ") for line in done.stdout.splitlines() if done.returncode == 0]
    return [dict(zip(names, row, strict=False)) for row in rows]


def stamp() -> dict[str, Any]:
    """Pin and patch set of the installed SGLang, out of the file that vendoring wrote into it."""
    spec = importlib.util.find_spec("sglang")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        file = Path(place) / "_spec_pin.json"
        if file.is_file():
            content = json.loads(file.read_text())
            return {
                "sglang": f"{content['version']}+spec.{content['spec']}",
                "wheel_sha256": content["wheel_sha256"],
                "patch_set": content["patch_set"],
                "patches": [patch["slug"] for patch in content["patches"]],
            }
    return {"sglang": "no stamp: plain, or not installed", "patch_set": None, "patches": []}


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def provenance(files: Sequence[Path], results: Sequence[Result]) -> dict[str, Any]:
    """Where a run on this machine comes from."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpus": gpus(),
        **stamp(),
        "python": platform.python_version(),
        "versions": versions(),
        "files": [file.name for file in files],
        "tests": len(results),
        "seconds": round(sum(result.seconds for result in results), 1),
    }


def record(results: Sequence[Result], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The content of `gpu.json`."""
    chosen = worst(results)
    by_outcome = {
        outcome: [result for result in chosen if result.outcome == outcome] for outcome in _RANK
    }
    return {
        "provenance": list(runs),
        "counts": {outcome: len(found) for outcome, found in by_outcome.items()},
        FAILED: [_entry(result, "message") for result in by_outcome[FAILED]],
        SKIPPED: [_entry(result, "reason") for result in by_outcome[SKIPPED]],
        PASSED: [_entry(result, "") for result in by_outcome[PASSED]],
    }


def _entry(result: Result, why: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"test": result.test}
    if why:
        entry[why] = result.why
    else:
        entry["seconds"] = round(result.seconds, 2)
    if result.properties:
        entry["measured"] = dict(result.properties)
    return entry


def of_record(file: Path) -> tuple[list[Result], list[dict[str, Any]]]:
    """Results and runs of a record written before."""
    try:
        content = json.loads(file.read_text())
        results = [
            Result(
                entry["test"],
                outcome,
                float(entry.get("seconds", 0)),
                entry.get("message") or entry.get("reason") or "",
                tuple(entry.get("measured", {}).items()),
            )
            for outcome in _RANK
            for entry in content[outcome]
        ]
        runs: list[dict[str, Any]] = content["provenance"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not a record of GPU runs ({error!r})") from error
    return results, runs


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=("write", "merge"))
    parser.add_argument("output", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    results: list[Result] = []
    runs: list[dict[str, Any]] = []
    try:
        if options.verb == "write":
            results = [result for file in options.files for result in of_junit(file)]
            runs = [provenance(options.files, results)]
        else:
            for file in options.files:
                more, from_runs = of_record(file)
                results += more
                runs += from_runs
    except RecordError as error:
        sys.exit(f"gpu_record: {error}")
    content = record(results, runs)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{options.output}: {content['counts']}")


if __name__ == "__main__":
    main()
