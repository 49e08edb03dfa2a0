"""What `test/gpu/visit.toml` names is there: no second on a GPU goes to a misspelt option."""

from __future__ import annotations

import argparse
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from gpu_visit.__main__ import PLAN
from gpu_visit.machine import stand_in
from gpu_visit.plan import Benchmark, Lane, read
from gpu_visit.schedule import Schedule, Start, foreseen, hindrance
from gpu_visit.work import ROOT, filled
from kit import gpu_mutants

CONTENT = read(PLAN)
LANES = [job for job in CONTENT.jobs if isinstance(job, Lane)]
BENCHMARKS = [job for job in CONTENT.jobs if isinstance(job, Benchmark)]
# The same as the benchmark `comm-bench`, which keeps what it finds.
MEASURED_INSTEAD = "test_comm.py::test_the_benchmark_chooses_nothing_that_is_slower"


class Parsed(BaseException):
    """A command line was understood; nothing of it has run."""


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs end with `Parsed` where their work would begin, whether click's or argparse's."""
    parse, invoke = argparse.ArgumentParser.parse_args, click.Command.invoke

    def parsed(self: Any, *arguments: Any, **named: Any) -> None:
        parse(self, *arguments, **named)
        raise Parsed

    def invoked(self: click.Command, context: click.Context) -> Any:
        if isinstance(self, click.Group):
            return invoke(self, context)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
    monkeypatch.setattr(click.Command, "invoke", invoked)
    monkeypatch.syspath_prepend(str(ROOT / "benchmark"))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:  # programs of `benchmark/` are no packages
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmark")):
            del sys.modules[name]


def understand(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as `python argv` would, up to `Parsed`."""
    module = argv[0] == "-m"
    monkeypatch.setattr(sys, "argv", argv[1:] if module else argv)
    if module:
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(ROOT / argv[0]), run_name="__main__")


def words(job: Benchmark) -> list[str]:
    gpus = tuple(map(str, range(job.needs)))
    return filled(job.argv[1:], Start(job, gpus, 0, job.seconds), Path("/out"))


@pytest.mark.parametrize("job", BENCHMARKS, ids=lambda job: job.name)
def test_every_program_understands_its_command_line(
    job: Benchmark, only_parsed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Parsed):
        understand(words(job), monkeypatch)


@pytest.mark.parametrize(
    "argv",
    [
        ["benchmark/threshold.py", "run", "--cels", "1024:1"],
        ["benchmark/threshold.py", "run", "--cells", "many"],
        ["benchmark/fidelity.py", "--batches", "1"],
        ["-m", "soak", "--request", "many"],
        ["-m", "sglang_spec", "comm-bench", "--rank"],
    ],
)
def test_a_misspelt_one_would_be_found(
    argv: list[str], only_parsed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as ended:
        understand(argv, monkeypatch)
    assert ended.value.code == 2


@pytest.fixture(scope="module")
def known() -> list[str]:
    """Ids of all tests in `test/gpu`."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test/gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("test/gpu/")]
    assert len(found) > 500, done.stdout[-2000:]
    return found


def chosen(lane: Lane, known: list[str]) -> list[str]:
    """As `gpu_visit.choose` does on what pytest collects."""
    pattern = re.compile(lane.pattern)
    return [
        test
        for test in known
        if pattern.search(test) and any(test.split("::")[0] == name for name in lane.tests)
    ]


def test_lanes_hold_every_test_of_gpus_and_none_is_empty(known: list[str]) -> None:
    of_lane = {lane.name: chosen(lane, known) for lane in LANES}
    assert not [name for name, tests in of_lane.items() if not tests]
    held = {test for tests in of_lane.values() for test in tests}
    assert [test for test in known if test not in held] == [f"test/gpu/{MEASURED_INSTEAD}"]


def test_every_patch_is_tried_with_tests_that_there_are(known: list[str]) -> None:
    named = {test for guard in gpu_mutants.GUARDS.values() for test in guard.tests}
    assert named <= set(known)


def test_no_test_is_run_twice(known: list[str]) -> None:
    seen: dict[str, str] = {}
    for lane in LANES:
        for test in chosen(lane, known):
            assert seen.setdefault(test, lane.name) == lane.name, test


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_a_visit_of_twenty_minutes_reaches_lanes_and_benchmarks(gpus: int) -> None:
    machine = stand_in(gpus, 150.0)
    assert not [job.name for job in CONTENT.jobs if job.needs <= gpus and hindrance(job, machine)]
    starts = foreseen(Schedule.of(CONTENT, machine, CONTENT.seconds, set()))
    kinds = {start.job.kind for start in starts}
    assert kinds == {"lane", "benchmark"}
    widest = [start for start in starts if start.job.needs == gpus]
    assert widest and max(start.at + start.limit for start in starts) <= CONTENT.seconds


def test_with_several_gpus_the_widest_runs_come_first() -> None:
    starts = foreseen(Schedule.of(CONTENT, stand_in(8, 150.0), 20_000, set()))
    benchmarks = [start.job.name for start in starts if start.job.kind == "benchmark"]
    assert benchmarks[:2] == ["comm-bench-8", "llama-70b-8"]
    assert benchmarks.index("comm-bench-4") > benchmarks.index("kimi-cut-8")
