"""The record of GPU runs, from JUnit files that pytest wrote: kept ones and fresh ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit import gpu_record

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "test/results/h200-2026-11-29"

PROGRAM = """
import pytest

def test_good(record_property):
    record_property("accept_length", 2.66)

def test_bad():
    assert 1 == 2, "one is not two"

@pytest.mark.skipif(True, reason="needs 8 CUDA GPU(s), this host has 1")
def test_left_out():
    raise AssertionError

@pytest.fixture
def broken():
    raise RuntimeError("the server ended with 1")

def test_no_server(broken):
    raise AssertionError
"""


def run(folder: Path, program: str, name: str = "junit.xml") -> Path:
    """A JUnit file of a real pytest run."""
    (folder / "test_some.py").write_text(program)
    file = folder / name
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    subprocess.run([*command, f"--junit-xml={file}"], capture_output=True, check=False)
    return file


def write(folder: Path, *files: Path) -> dict[str, Any]:
    output = folder / "out" / "gpu.json"
    gpu_record.main(["write", str(output), *map(str, files)])
    content: dict[str, Any] = json.loads(output.read_text())
    return content


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("fresh")
    return write(folder, run(folder, PROGRAM))


def test_every_outcome_is_told_apart(fresh: dict[str, Any]) -> None:
    assert fresh["counts"] == {"failed": 2, "passed": 1, "skipped": 1}
    (passed,) = fresh["passed"]
    assert passed["test"].endswith("test_some.py::test_good")
    assert passed["measured"] == {"accept_length": "2.66"}
    (skipped,) = fresh["skipped"]
    assert skipped["reason"] == "needs 8 CUDA GPU(s), this host has 1"
    failed = {entry["test"].rpartition("::")[2]: entry["message"] for entry in fresh["failed"]}
    assert "one is not two" in failed["test_bad"]
    assert "the server ended with 1" in failed["test_no_server"]


def test_provenance_says_what_ran_on_what(fresh: dict[str, Any]) -> None:
    (run_of,) = fresh["provenance"]
    assert {"date", "gpus", "patch_set", "sglang", "versions", "python"} <= set(run_of)
    assert run_of["tests"] == 4
    assert all({"name", "driver_version"} <= set(gpu) for gpu in run_of["gpus"])


def test_the_kept_files_of_the_first_visit() -> None:
    results = [r for name in ("triton.xml", "rest.xml") for r in gpu_record.of_junit(KEPT / name)]
    content = gpu_record.record(results, [])
    assert content["counts"] == {"failed": 0, "passed": 41, "skipped": 1}
    assert content["skipped"][0]["reason"] == ("the oracle counts chains, this server drafts trees")
    assert content["passed"][0]["test"].startswith("test/gpu/test_decode.py::test_")


def test_two_gpus_undo_a_skip_of_one_and_never_a_failure(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = run(tmp_path / "one", PROGRAM)
    two = run(
        tmp_path / "two",
        PROGRAM.replace("skipif(True", "skipif(False")
        .replace("raise AssertionError", "return", 1)
        .replace("1 == 2", "2 == 2"),
    )
    # The same tests: the two runs differ in their folder only.
    two.write_text(two.read_text().replace(".two.", ".one."))
    parts = []
    for file in (one, two):
        write(file.parent, file)
        parts.append(str(file.parent / "out" / "gpu.json"))
    merged = tmp_path / "gpu.json"
    gpu_record.main(["merge", str(merged), *parts])
    content = json.loads(merged.read_text())
    names = {
        key: [e["test"].rpartition("::")[2] for e in content[key]] for key in content["counts"]
    }
    assert names["skipped"] == []
    assert names["passed"] == ["test_good", "test_left_out"]
    assert names["failed"] == ["test_bad", "test_no_server"]
    assert len(content["provenance"]) == 2


def test_a_file_cut_off_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text((KEPT / "triton.xml").read_text()[:-40])
    with pytest.raises(SystemExit, match=r"junit\.xml: not a JUnit result"):
        gpu_record.main(["write", str(tmp_path / "gpu.json"), str(file)])
    assert not (tmp_path / "gpu.json").exists()
    with pytest.raises(SystemExit, match="not a record of GPU runs"):
        gpu_record.main(["merge", str(tmp_path / "gpu.json"), str(file)])
