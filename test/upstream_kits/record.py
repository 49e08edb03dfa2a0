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

from . import compare, servers
from .kits import Kit
from .servers import CONTROL, PATCHED, PLAIN

PASSED, FAILED, NOT_RUN, CUT_OFF = "passed", "failed", "not run", "cut off"


def not_run(reason: str) -> dict[str, Any]:
    return {"outcome": NOT_RUN, "reason": reason}


def entry(
    lines: Sequence[Mapping[str, Any]], code: int, left_out: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One kit on one variant, out of the lines of its tests; a test may have been run several
    times, and is flaky if it passed in some of them only. `part` is added to an entry that has not
    all tests of its kit, `rest` to one that has those that a part lacked.

    Args:
        code: exit code of the process that they ran in.
        left_out: tests that were not to be run there, with the reasons.
    """
    if not lines and code:
        return not_run(f"the process of the kits ended with {code} before this one")
    if lines and lines[0]["outcome"] == NOT_RUN:
        return not_run(lines[0]["message"])
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        if line["outcome"] != CUT_OFF:
            runs.setdefault(line["test"], []).append(line)
    cut = {line["test"]: line["message"] for line in lines if line["test"] not in runs}
    cut |= left_out or {}
    passes = {test: sum(one["outcome"] == PASSED for one in ran) for test, ran in runs.items()}
    bad = [test for test, ran in runs.items() if passes[test] < len(ran)]
    said = {t: next(o["message"] for o in runs[t] if o["outcome"] == FAILED) for t in bad}
    counts = {test: {"passed": passes[test], "of": len(ran)} for test, ran in runs.items()}
    flaky = [{"test": t, "message": said[t], **counts[t]} for t in bad if passes[t]]
    return {
        "outcome": FAILED if bad else PASSED,
        "passed": [test for test in runs if test not in bad],
        "failed": [{"test": t, "message": said[t]} for t in bad if not passes[t]],
        **({"flaky": flaky} if flaky else {}),
        **({"cut_off": cut} if cut else {}),
        "runs": max((len(ran) for ran in runs.values()), default=0),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
    }


def joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a kit of which some tests were run later with the same code: theirs are new."""
    if old.get("code") != new["code"] or NOT_RUN in (old["outcome"], new["outcome"]):
        return dict(new)
    again = {*new["passed"], *(one["test"] for one in _bad(new)), *new.get("cut_off", ())}
    both: dict[str, Any] = {**old, "runs": max(old["runs"], new["runs"])}
    both["part"] = old.get("part") and not new.get("rest")
    both["seconds"] = round(old["seconds"] + new["seconds"], 1)
    both["passed"] = [test for test in old["passed"] if test not in again] + new["passed"]
    for name in ("failed", "flaky"):
        kept = [one for one in old.get(name, ()) if one["test"] not in again]
        both[name] = kept + new.get(name, [])
    cut = {test: why for test, why in old.get("cut_off", {}).items() if test not in again}
    both["cut_off"] = cut | new.get("cut_off", {})
    both["outcome"] = FAILED if _bad(both) else PASSED
    return {name: value for name, value in both.items() if value or name in ("passed", "failed")}


def settled(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry; a whole one that has only tests that took too long says that it was not run."""
    one = {name: value for name, value in entry.items() if name != "rest"}
    if one["outcome"] == NOT_RUN or one.get("part") or one["passed"] or _bad(one):
        return one
    cut = one.pop("cut_off")
    return {**not_run(f"{', '.join(cut)}: {next(iter(cut.values()))}"), "code": one["code"]}


def _bad(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*entry.get("failed", ()), *entry.get("flaky", ())]


def known(content: Mapping[str, Any], device: str, variant: str, code: str) -> dict[str, set[str]]:
    """The kits that this code has a result of; those of a part with the tests that it has."""
    found: dict[str, set[str]] = {}
    for key, devices in content["kits"].items():
        one = devices.get(device, {}).get(variant, {})
        if one.get("code") == code:
            tests = {*one.get("passed", ()), *one.get("cut_off", ())}
            tests |= {bad["test"] for bad in _bad(one)}
            found[key] = tests if one.get("part") else set()
    return found


def content(
    kits: Sequence[Kit],
    device: str,
    found: Mapping[str, Mapping[str, dict[str, Any]]],
    options: argparse.Namespace,
    seconds: float,
) -> dict[str, Any]:
    """The record of one run: `kits` by kit and device, and where it comes from by device."""
    table = {}
    load = round(os.getloadavg()[1], 1)
    codes = {variant: servers.code(variant) for variant in found}
    for kit in kits:
        why = kit.why_not(device)
        if why:
            table[kit.key] = {device: {variant: not_run(why) for variant in (PATCHED, PLAIN)}}
            continue
        table[kit.key] = {
            device: {
                variant: {**results[kit.key], "code": codes[variant], "load": load}
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
                "load_average": load,
                **{variant: servers.versions(variant) for variant in (PATCHED, PLAIN)},
                "python": platform.python_version(),
                "versions": gpu_record.versions(),
                "backend": options.backend if device == "gpu" else "intel_amx",
                "seconds": round(seconds, 1),
            }
        },
        "kits": table,
    }


def read(file: Path | None) -> dict[str, Any]:
    """The record in the file; an empty one if there is none yet."""
    if file is None or not file.is_file():
        return {"provenance": {}, "kits": {}}
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def write(file: Path, new: Mapping[str, Any]) -> dict[str, Any]:
    """Adds one run to the file; an entry of the same kit, device and variant is replaced, or, where
    only some tests were run, joined."""
    old = read(file)
    old["provenance"] |= new["provenance"]
    for key, devices in new["kits"].items():
        for device, variants in devices.items():
            kept = old["kits"].setdefault(key, {}).setdefault(device, {})
            for name, one in variants.items():
                if name == "chosen":
                    kept[name] = one
                    continue
                later = name in kept and (one.get("part") or one.get("rest"))
                kept[name] = settled(joined(kept[name], one) if later else one)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(old, indent=1) + "\n")
    return old


def lines(content: Mapping[str, Any], device: str) -> list[str]:
    """For the terminal: a line for each kit that was run."""
    found = []
    for key, devices in content["kits"].items():
        variants = devices.get(device, {})
        said = []
        for variant in (PATCHED, PLAIN, CONTROL):
            one = variants.get(variant)
            if one is not None and one["outcome"] != NOT_RUN:
                total = len(compare.shares(variants, variant))
                said.append(f"{variant} {len(one['passed'])}/{total}")
            elif one is not None:
                said.append(f"{variant} not run")
        found.append(f"{key}: {', '.join(said)}")
        for test, message in compare.failures(variants, PATCHED).items():
            found.append(f"    {test}: {message[:160]}")
        for test, one in compare.flaky(variants, PATCHED).items():
            found.append(
                f"    {test}: passed {one['passed']} of {one['of']}; {one['message'][:140]}"
            )
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
