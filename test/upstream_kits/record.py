"""`test/results/upstream_kits.json`: kit, device, variant; what passed, failed or was not run."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kit import gpu_record

from . import servers
from .kits import Kit
from .servers import CONTROL, PATCHED, PLAIN

PASSED, FAILED, NOT_RUN, CUT_OFF = "passed", "failed", "not run", "cut off"


def not_run(reason: str) -> dict[str, Any]:
    return {"outcome": NOT_RUN, "reason": reason}


def entry(
    lines: Sequence[Mapping[str, Any]], code: int, left_out: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One kit on one variant, out of the lines of its tests.

    Args:
        code: exit code of the process that they ran in.
        left_out: tests that were not to be run there, with the reasons.
    """
    if not lines:
        return not_run(f"the process of the kits ended with {code} before this one")
    if lines[0]["outcome"] == NOT_RUN:
        return not_run(lines[0]["message"])
    failed = [line for line in lines if line["outcome"] == FAILED]
    cut = {line["test"]: line["message"] for line in lines if line["outcome"] == CUT_OFF}
    if len(cut) == len(lines):
        return not_run(f"{', '.join(cut)}: {next(iter(cut.values()))}")
    cut |= left_out or {}
    return {
        "outcome": FAILED if failed else PASSED,
        "passed": [line["test"] for line in lines if line["outcome"] == PASSED],
        "failed": [{"test": line["test"], "message": line["message"]} for line in failed],
        **({"cut_off": cut} if cut else {}),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
    }


def content(
    kits: Sequence[Kit],
    device: str,
    found: Mapping[str, Mapping[str, dict[str, Any]]],
    options: argparse.Namespace,
    seconds: float,
) -> dict[str, Any]:
    """The record of one run: `kits` by kit and device, and where it comes from by device."""
    table = {}
    for kit in kits:
        why = kit.why_not(device)
        if why:
            table[kit.key] = {device: {variant: not_run(why) for variant in (PATCHED, PLAIN)}}
            continue
        table[kit.key] = {
            device: {
                variant: results[kit.key]
                for variant, results in found.items()
                if kit.key in results
            }
        }
        if kit.attributes and table[kit.key][device]:
            table[kit.key][device]["chosen"] = dict(kit.attributes)
    table = {key: found for key, found in table.items() if found[device]}
    return {
        "provenance": {
            device: {
                "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "gpus": gpu_record.gpus(),
                "cpu_cores": os.cpu_count(),
                "load_average": round(os.getloadavg()[1], 1),
                **{variant: servers.versions(variant) for variant in (PATCHED, PLAIN)},
                "python": platform.python_version(),
                "versions": gpu_record.versions(),
                "backend": options.backend if device == "gpu" else "intel_amx",
                "seconds": round(seconds, 1),
            }
        },
        "kits": table,
    }


def write(file: Path, new: Mapping[str, Any]) -> dict[str, Any]:
    """Adds one run to the file; an entry of the same kit, device and variant is replaced."""
    old: dict[str, Any] = {"provenance": {}, "kits": {}}
    if file.is_file():
        old = json.loads(file.read_text())
    old["provenance"] |= new["provenance"]
    for key, devices in new["kits"].items():
        for device, variants in devices.items():
            old["kits"].setdefault(key, {}).setdefault(device, {}).update(variants)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(old, indent=1) + "\n")
    return old


def failures(variants: Mapping[str, Any], variant: str) -> dict[str, str]:
    """Failed tests and their messages."""
    return {one["test"]: one["message"] for one in variants.get(variant, {}).get("failed", ())}


def worse(content: Mapping[str, Any], device: str) -> list[str]:
    """Tests that fail patched and pass plain; where plain does not start, without speculation."""
    found = []
    for key, devices in content["kits"].items():
        variants = devices.get(device, {})
        plain = variants.get(PLAIN, {})
        if plain.get("outcome") in (None, NOT_RUN):
            plain = variants.get(CONTROL, {})
        for test, message in failures(variants, PATCHED).items():
            if test in plain.get("passed", ()):
                found.append(f"{key}.{test}: {message}")
    return found


def lines(content: Mapping[str, Any], device: str) -> list[str]:
    """For the terminal: a line for each kit that was run."""
    found = []
    for key, devices in content["kits"].items():
        variants = devices.get(device, {})
        said = []
        for variant in (PATCHED, PLAIN, CONTROL):
            one = variants.get(variant)
            if one is not None and one["outcome"] != NOT_RUN:
                total = len(one["passed"]) + len(one["failed"])
                said.append(f"{variant} {len(one['passed'])}/{total}")
            elif one is not None:
                said.append(f"{variant} not run")
        found.append(f"{key}: {', '.join(said)}")
        for test, message in failures(variants, PATCHED).items():
            found.append(f"    {test}: {message[:160]}")
        for test, message in variants.get(PATCHED, {}).get("cut_off", {}).items():
            found.append(f"    {test}: {message[:160]}")
    return found


def main() -> None:
    """`python -m upstream_kits.record merge OUT PAGE IN...`"""
    from . import page

    _, output, where, *files = sys.argv[1:]
    both: dict[str, Any] = {}
    for file in files:
        both = write(Path(output), json.loads(Path(file).read_text()))
    page.write(Path(where), both)


if __name__ == "__main__":
    main()
