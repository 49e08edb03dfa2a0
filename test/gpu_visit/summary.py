"""What a visit tells: `summary.json`, the table on stdout, JUnit, and the record of its tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kit import gpu_record
from kit.gpu_record import FAILED, PASSED, SKIPPED, Result

from .code import code_hash

FILE, TABLE, RECORD, JUNIT = "summary.json", "summary.txt", "gpu.json", "junit.xml"
LAST = 4  # lines of the log of a job that failed without a test that did
_CASES = {"passed": None, "failed": "failure", "skipped": "skipped", "cut-off": "skipped"}


class SummaryError(ValueError):
    """A file that is no summary of a visit; the text names it."""


def read(file: Path) -> dict[str, Any]:
    """Raises SummaryError."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        _ = [(job["name"], job["state"], job["tests"]) for job in content["jobs"]], content["about"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SummaryError(f"{file}: no summary of a visit ({error!r})") from None
    return dict(content)


def passed_before(
    content: Mapping[str, Any], here: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """Of each job the tests that passed, if it was the same code on the same kind of GPU; a job
    that passed as a whole has "*" besides.

    Args:
        here: what a visit made here would say it is `about`.

    Raises:
        SummaryError: it is of another patch set, other modules or tests, or other GPUs.
    """
    then, now = _same(content["about"]), _same(here)
    for what, value in now.items():
        if then[what] != value:
            raise SummaryError(
                f"the summary is of {what} {then[what]}, here is {value}; what passed there says "
                "nothing here, so leave --resume out"
            )
    found = {}
    for job in content["jobs"]:
        whole = ["*"] if job["state"] in ("passed", "passed before") else []
        passed = [one["test"] for one in job["tests"] if one["outcome"] == "passed"]
        found[job["name"]] = (*whole, *passed, *job.get("before", ()))
    return found


def about(gpus: Sequence[str]) -> dict[str, Any]:
    """On what and with what the visit is made."""
    seen = gpu_record.provenance([], [])
    del seen["files"], seen["tests"], seen["seconds"]
    return {**seen, "code": code_hash(), "used": list(gpus)}


def _same(about: Mapping[str, Any]) -> dict[str, str]:
    """What has to be equal for a test that passed to have passed."""
    names = sorted({gpu["name"] for gpu in about.get("gpus", ())})
    return {
        "patch set": str(about.get("patch_set"))[:12],
        "code": str(about.get("code"))[:12],
        "GPUs": ", ".join(names) or "none",
    }


def write(out: Path, content: Mapping[str, Any]) -> list[str]:
    """Everything a reader wants, whole at any time; gives the table."""
    _replace(out / FILE, json.dumps(content, indent=1) + "\n")
    lines = table(content)
    _replace(out / TABLE, "\n".join(lines) + "\n")
    results = []
    for job in content["jobs"]:
        if job["tests"]:
            (out / job["name"]).mkdir(exist_ok=True)
            _replace(out / job["name"] / JUNIT, junit(job))
            results += [_result(one) for one in job["tests"] if one["outcome"] in _CASES]
    seconds = round(sum(result.seconds for result in results), 1)
    run = {**content["about"], "files": [FILE], "tests": len(results), "seconds": seconds}
    _replace(out / RECORD, json.dumps(gpu_record.record(results, [run]), indent=1) + "\n")
    return lines


def _replace(file: Path, text: str) -> None:
    partial = file.with_name(file.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def _result(entry: Mapping[str, Any]) -> Result:
    outcome = {"passed": PASSED, "failed": FAILED}.get(entry["outcome"], SKIPPED)
    why = "cut off: its time was over" if entry["outcome"] == "cut-off" else entry["message"]
    measured = tuple((str(k), str(v)) for k, v in entry.get("properties", {}).items())
    why = "" if outcome == PASSED else why
    return Result(entry["test"], outcome, entry["seconds"], why, measured)


def junit(job: Mapping[str, Any]) -> str:
    """Its tests that have an outcome; one that was cut off is a skip that says so."""
    cases = [one for one in job["tests"] if one["outcome"] in _CASES]
    count = Counter(one["outcome"] for one in cases)
    suite = ElementTree.Element(
        "testsuite",
        name=job["name"],
        tests=str(len(cases)),
        failures=str(count["failed"]),
        skipped=str(count["skipped"] + count["cut-off"]),
        time=str(job["seconds"]),
    )
    for one in cases:
        file, _, name = one["test"].partition("::")
        module = file.removesuffix(".py").replace("/", ".")
        case = ElementTree.SubElement(
            suite, "testcase", classname=module, name=name, time=str(one["seconds"])
        )
        if kind := _CASES[one["outcome"]]:
            ElementTree.SubElement(case, kind, message=_printable(_result(one).why))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    """Control characters are no XML."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def table(content: Mapping[str, Any]) -> list[str]:
    """What was reached, a line a job, and each failed test's first words."""
    where = content["about"]
    names = ", ".join(gpu["name"] for gpu in where["gpus"]) or "no GPU"
    lines = [
        f"visit {content['state']}{': ' + content['why'] if content['why'] else ''}; "
        f"{content['elapsed']:.0f} of {content['seconds']:.0f} s, {names}, "
        f"patch set {str(where['patch_set'])[:12]}"
    ]
    for job in content["jobs"]:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in job["counts"].items())
        said = "; ".join(filter(None, (counts, job["why"], ", ".join(job["results"]))))
        lines.append(
            f"{job['state']:13} {job['name']:26} {job['seconds']:6.0f} s  "
            f"GPU {','.join(job['gpus']) or '-':7} {said}"
        )
        lines += [
            f"{'':14}{one['test']}: {one['message'][:160]}"
            for one in job["tests"]
            if one["outcome"] == "failed"
        ]
        if job["state"] == "failed" and not job["counts"].get("failed"):
            lines += [f"{'':14}| {line}" for line in job["tail"][-LAST:]]
    states = Counter(job["state"] for job in content["jobs"])
    return [*lines, ", ".join(f"{count} {state}" for state, count in states.items())]
