"""Visits that really run, with tiny tests and programs in place of those that need a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from gpu_visit import visit
from gpu_visit.__main__ import main
from gpu_visit.machine import Machine
from gpu_visit.plan import read
from kit import gpu_record

ROOT = Path(__file__).resolve().parents[3]
TESTS = {
    "meet": """
import os, pathlib, time
def test_another_lane_runs_meanwhile():
    folder = pathlib.Path({folder!r})
    (folder / os.environ["OUT"].rpartition("/")[2]).touch()
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2:
        assert time.monotonic() < until, "alone"
        time.sleep(0.05)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0" and os.environ["SPEC_TEST_SERVERS"] == "2"
""",
    "slow": """
import time
def test_quick(record_property):
    record_property("speed", 7)
def test_slow():
    time.sleep(600)
def test_never():
    pass
""",
    "bad": """
def test_good():
    pass
def test_bad():
    assert 1 == 2, "planted"
def test_of_another_lane():
    assert False
""",
    "child": """
import pathlib, subprocess
def test_leaves_a_child():
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pathlib.Path({pid!r}).write_text(str(child.pid))
""",
}  # fmt: skip
PROGRAM = """
import pathlib, sys, time
out = pathlib.Path(sys.argv[1])
if "silent" not in sys.argv:
    (out / "figures.json").write_text(sys.argv[2])
if "sleep" in sys.argv:
    (out / "began").touch()
    time.sleep(600)
"""
BAD = "seconds = 100\nselect = 'test_(good|bad)$'"
Files = Callable[..., Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Writes a plan of the named lanes and of benchmarks; gives the plan."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)

    def make(lanes: dict[str, str], benchmarks: dict[str, str] | None = None) -> Path:
        text = ""
        for number, (name, given) in enumerate(lanes.items()):
            kind = name.partition("-")[0]
            test = tmp_path / f"test_{kind}.py"
            test.write_text(
                TESTS[kind].replace("{folder!r}", repr(str(meeting)))
                           .replace("{pid!r}", repr(str(tmp_path / "pid")))
            )  # fmt: skip
            text += f'[[lane]]\nname = "{name}"\ngoal = "g"\nworth = {50 - number}\n'
            text += f'tests = ["{test}"]\n{given}\n'
        for name, given in (benchmarks or {}).items():
            text += f'[[benchmark]]\nname = "{name}"\ngoal = "g"\nworth = 1\nresults = '
            text += f'["figures.json"]\nargv = ["python", "{tmp_path}/program.py", "{{out}}", '
            text += f'"{{seconds}}"{given}\n'
        (tmp_path / "visit.toml").write_text(text)
        return tmp_path / "visit.toml"

    return make


def command(plan: Path, *more: str) -> list[str]:
    out = plan.parent / "out"
    words = [sys.executable, "-m", "gpu_visit", "run", "--plan", str(plan), "--out", str(out)]
    return [*words, "--gpus", "1", "--json", *more]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "test"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def run(plan: Path, *more: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Exit status, the summary, and its jobs by name."""
    done = subprocess.run(
        command(plan, *more),
        env=environment(),
        cwd=plan.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    content = json.loads(done.stdout)
    assert content == json.loads((plan.parent / "out/summary.json").read_text())
    return done.returncode, content, {job["name"]: job for job in content["jobs"]}


def outcomes(job: dict[str, Any]) -> dict[str, str]:
    return {one["test"].partition("::")[2]: one["outcome"] for one in job["tests"]}


def test_lanes_side_by_side_then_a_benchmark_and_all_of_it_on_record(files: Files) -> None:
    """One failing, one ended at its limit, one that leaves a process behind."""
    limit = "seconds = 100"
    plan = files(
        {"meet-a": limit, "meet-b": limit, "slow": "seconds = 16", "bad": BAD, "child": limit},
        {"speed": "]\nseconds = 50", "silent": ', "silent"]\nseconds = 50'},
    )
    home = plan.parent / "home"
    code, content, jobs = run(plan, "--seconds", "300", "--bring-back", str(home))
    assert code == 1 and content["state"] == "done" and content["why"] == ""
    states = {name: job["state"] for name, job in jobs.items()}
    assert states == {
        "meet-a": "passed", "meet-b": "passed", "slow": "cut off", "bad": "failed",
        "child": "passed", "speed": "passed", "silent": "failed",
    }  # fmt: skip
    assert outcomes(jobs["slow"]) == {"test_quick": "passed", "test_slow": "cut-off"}
    assert jobs["slow"]["why"] == "its limit was over" and jobs["slow"]["tail"]
    assert jobs["bad"]["counts"] == {"passed": 1, "failed": 1}
    assert "planted" in jobs["bad"]["tests"][1]["message"]
    pid = int((plan.parent / "pid").read_text())
    assert not psutil.pid_exists(pid), "what a lane leaves behind is ended with it"
    assert jobs["silent"]["why"] == "did not write figures.json"
    assert jobs["speed"]["results"] == ["figures.json"]
    assert jobs["speed"]["at"] > jobs["slow"]["at"] + jobs["slow"]["seconds"] - 1
    assert (plan.parent / "out/speed/figures.json").read_text() == "35", "less than its limit"
    assert content["about"]["patch_set"] == gpu_record.stamp()["patch_set"] is not None
    record = json.loads((home / "gpu.json").read_text())
    # Two lanes have the same test, which counts once.
    assert record["counts"] == {"failed": 1, "passed": 4, "skipped": 1}
    assert "cut off" in record["skipped"][0]["reason"]
    assert {"speed": "7"} in [entry.get("measured") for entry in record["passed"]]
    read = gpu_record.of_junit(plan.parent / "out/bad/junit.xml")
    assert [one.outcome for one in read] == ["passed", "failed"] and "planted" in read[1].why
    back = sorted(path.name for path in home.iterdir())
    assert back == [
        "gpu.json", "logs.tar.xz", "results.tar.xz", "summary.json", "summary.txt", "tests.jsonl",
    ]  # fmt: skip
    table = (home / "summary.txt").read_text()
    assert table.splitlines()[-1] == "4 passed, 1 cut off, 2 failed", table


def test_the_time_of_the_visit_is_kept(files: Files) -> None:
    plan = files(
        {"slow": "seconds = 500\nleast = 3", "bad": "seconds = 500\nalone = true"},
        {"speed": "]\nseconds = 500"},
    )
    began = time.monotonic()
    code, content, jobs = run(plan, "--seconds", "50")
    assert time.monotonic() - began < 50
    assert code == 0 and content["elapsed"] < 50
    assert jobs["slow"]["state"] == "cut off" and jobs["slow"]["limit"] <= 10
    assert {jobs["bad"]["state"], jobs["speed"]["state"]} == {"not reached"}


def test_what_passed_is_not_run_again_and_only_at_the_same_patch_set(files: Files) -> None:
    plan = files({"bad": BAD, "child": "seconds = 100"})
    first, _, _ = run(plan)
    summary = plan.parent / "first.json"
    (plan.parent / "out/summary.json").rename(summary)
    (plan.parent / "pid").unlink()
    code, content, jobs = run(plan, "--resume", str(summary))
    assert (first, code) == (1, 1)
    assert jobs["child"]["state"] == "passed before" and not (plan.parent / "pid").exists()
    assert outcomes(jobs["bad"]) == {"test_bad": "failed"}, "the other one has passed"
    content["about"]["patch_set"] = "f" * 64
    summary.write_text(json.dumps(content))
    refused = subprocess.run(
        command(plan, "--resume", str(summary)),
        env=environment(), cwd=plan.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2 and "patch set ffffffffffff" in refused.stderr


@contextmanager
def under_way(plan: Path, is_far: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """A visit that has come so far; killed at the end, if it is not over by then."""
    with (plan.parent / "said").open("w") as said:
        child = subprocess.Popen(
            command(plan), env=environment(), cwd=plan.parent, stdout=said, stderr=said
        )
    try:
        until = time.monotonic() + 100
        while not is_far():
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.1)
        yield child
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    # The second takes the same way; too much for every run.
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)],
)
def test_a_visit_that_is_ended_keeps_what_it_has_and_leaves_nothing(
    files: Files, number: signal.Signals
) -> None:
    plan = files({"bad": BAD}, {"speed": ', "sleep"]\nseconds = 500'})
    out = plan.parent / "out"
    with under_way(plan, lambda: (out / "speed/began").exists()) as child:
        assert json.loads((out / "summary.json").read_text())["state"] == "running"
        family = psutil.Process(child.pid).children(recursive=True)
        assert family
        child.send_signal(number)
        assert child.wait(40) == 128 + number
    assert not [one for one in family if one.is_running() and one.status() != "zombie"]
    content = json.loads((out / "summary.json").read_text())
    jobs = {job["name"]: job for job in content["jobs"]}
    assert content["state"] == "partial" and signal.Signals(number).name in content["why"]
    assert jobs["bad"]["counts"] == {"passed": 1, "failed": 1}
    assert jobs["speed"]["state"] == "cut off" and jobs["speed"]["results"] == ["figures.json"]


def test_a_visit_that_is_killed_leaves_its_tests_on_record_and_no_process(files: Files) -> None:
    plan = files({"slow": "seconds = 500"})
    report = plan.parent / "out/slow/tests.jsonl"
    with under_way(plan, lambda: report.exists() and "test_slow" in report.read_text()) as child:
        family = psutil.Process(child.pid).children(recursive=True)
    kept = [json.loads(line) for line in report.read_text().splitlines()]
    assert [one["outcome"] for one in kept] == ["started", "passed", "started"]
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    shown = subprocess.run(
        [sys.executable, "-m", "gpu_visit", "show", str(plan.parent / "out"), "--bring-back",
         str(plan.parent / "home")],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0 and "running" in shown.stdout
    assert "test_quick" in (plan.parent / "home/tests.jsonl").read_text()


def test_a_visit_that_breaks_is_not_done(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(visit, "begin", full)
    plan = files({"bad": BAD})
    out = plan.parent / "out"
    with pytest.raises(OSError, match="No space left"):
        visit.Visit(read(plan), Machine(("0",), 100.0, 4), out, 100.0).run()
    content = json.loads((out / "summary.json").read_text())
    assert content["state"] == "partial" and "No space left" in content["why"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "gone"), "no lane or benchmark 'gone'; there are ['bad']"),
        (("--plan", "/nowhere.toml"), "/nowhere.toml"),
        (("--resume", "/nowhere.json"), "no summary of a visit"),
        (("--seconds", "nan"), "nan"),
    ],
)
def test_what_a_person_gets_wrong_is_told(
    files: Files, arguments: tuple[str, ...], words: str
) -> None:
    plan = files({"bad": BAD})
    done = CliRunner().invoke(main, [*command(plan)[3:], *arguments])
    assert done.exit_code == 2 and words in done.output and not (plan.parent / "out").exists()
