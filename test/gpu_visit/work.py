"""One job as a process, of which nothing stays behind, and what it left in its folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_spec import process
from vendoring.gpu.gpu_results import tests as outcomes

from .plan import Benchmark, Job, Lane
from .schedule import Start

ROOT = Path(__file__).resolve().parents[2]
LOG, REPORT = "log.txt", "tests.jsonl"
GRACE = 10.0  # seconds between the request to end and SIGKILL
MARGIN = 15.0  # seconds of a program's own time limit before its end here
NOTHING_RAN = 5  # pytest's exit status where no test was left


@dataclass
class Work:
    """A job that was started. `ended_by` says why it did not end by itself."""

    start: Start
    folder: Path
    child: process.Child
    began: float
    took: float = 0.0
    ended_by: str = ""
    status: int | None = None

    @property
    def over(self) -> bool:
        return time.monotonic() - self.began > self.start.limit

    def looked_at(self) -> bool:
        """Whether it has ended by itself by now."""
        if self.status is None and (status := self.child.poll()) is not None:
            self._note(status)
        return self.status is not None

    def end(self, why: str) -> None:
        """Everything that it started is gone afterwards."""
        if not self.looked_at():
            self.ended_by = why
            process.stop(self.child, GRACE)
            self._note(self.child.wait())

    def _note(self, status: int) -> None:
        self.status, self.took = status, time.monotonic() - self.began


def begin(start: Start, out: Path, done: Sequence[str], cores: Sequence[int] = ()) -> Work:
    """`done` are the ids of tests to leave out, `cores` those that it may use (none: all)."""
    folder = out / start.job.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in (LOG, REPORT):
        (folder / name).unlink(missing_ok=True)
    (folder / "done.txt").write_text("".join(f"{test}\n" for test in done))
    words, environment = command(start, folder), {**os.environ, **variables(start, folder)}
    child = process.spawn(words, folder / LOG, environment)
    if cores:
        os.sched_setaffinity(child.pid, cores)  # it starts an interpreter first, which hands it on
    return Work(start, folder, child, time.monotonic())


def end_all(works: Sequence[Work], why: str) -> None:
    """At the same time: each may take seconds."""
    if works:
        with ThreadPoolExecutor(len(works)) as pool:
            list(pool.map(lambda work: work.end(why), works))


def command(start: Start, folder: Path) -> list[str]:
    job = start.job
    if isinstance(job, Lane):
        plugins = ("-p", "no:cacheprovider", "-p", "gpu_report", "-p", "gpu_visit.choose")
        where = ("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
        return [sys.executable, "-m", "pytest", "-v", *where, *plugins, *job.tests]
    assert isinstance(job, Benchmark)
    return [sys.executable, *filled(job.argv[1:], start, folder)]


def filled(argv: Sequence[str], start: Start, folder: Path) -> list[str]:
    values = {"out": str(folder), "gpus": str(len(start.gpus))}
    values["seconds"] = str(int(max(1.0, start.limit - MARGIN)))
    found = []
    for word in argv:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        found.append(word)
    return found


def variables(start: Start, folder: Path) -> dict[str, str]:
    """What the process has besides this one's environment."""
    job: Job = start.job
    paths = [str(ROOT / place) for place in ("test", "python/vendoring/gpu")]
    found = {
        "CUDA_VISIBLE_DEVICES": ",".join(start.gpus),
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(":"),
        "PYTHONUNBUFFERED": "1",
        "OUT": str(folder),
        "GPU_REPORT": str(folder / REPORT),
        "SPEC_TEST_SERVERS": str(job.servers),
    }
    if isinstance(job, Lane):
        found |= {"VISIT_SELECT": job.pattern, "VISIT_DONE": str(folder / "done.txt")}
    return found


def result(work: Work) -> dict[str, Any]:
    """What came of a job, also of one that still runs: its entry of the summary."""
    job, seen = work.start.job, outcomes(work.folder / REPORT)
    for entry in seen:
        if entry["outcome"] == "cut-off" and not work.ended_by:
            entry["outcome"] = "running" if work.status is None else "failed"
            entry["message"] = entry["message"] or "the process ended in it"
    counts: dict[str, int] = {}
    for entry in seen:
        counts[entry["outcome"]] = counts.get(entry["outcome"], 0) + 1
    state, why = _state(work, counts)
    running = work.status is None
    return {
        "name": job.name,
        "kind": job.kind,
        "goal": job.goal,
        "worth": job.worth,
        "state": state,
        "why": why,
        "gpus": list(work.start.gpus),
        "at": round(work.start.at, 1),
        "seconds": round(time.monotonic() - work.began if running else work.took, 1),
        "limit": round(work.start.limit, 1),
        "status": work.status,
        "counts": counts,
        "tests": seen,
        "results": [name for name in getattr(job, "results", ()) if (work.folder / name).is_file()],
        "tail": [] if running or state == "passed" else tail(work.folder / LOG),
    }


def _state(work: Work, counts: dict[str, int]) -> tuple[str, str]:
    job, status = work.start.job, work.status
    if status is None:
        return "running", ""
    if work.ended_by:
        return ("failed" if counts.get("failed") else "cut off"), work.ended_by
    missing = [name for name in getattr(job, "results", ()) if not (work.folder / name).is_file()]
    if status != 0 and not (isinstance(job, Lane) and status == NOTHING_RAN):
        return "failed", f"exit status {status}"
    if missing:
        return "failed", f"did not write {', '.join(missing)}"
    if isinstance(job, Lane) and not counts.get("passed"):
        return "skipped", "no test ran"
    return "passed", ""


def tail(log: Path, lines: int = 25) -> list[str]:
    text = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return [line[:300] for line in text[-lines:]]
