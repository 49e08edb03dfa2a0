"""The raw results: valid at any moment, marked partial, gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.bench.command import bench
from sglang_spec.bench.runfile import Recorder, RunFileError, read

HEADER: dict[str, Any] = {"settings": {"rounds": 2, "sides": ["none"]}}


def measured(record: Recorder, number: int, **figures: Any) -> None:
    record.add("measurement", side="none", cell="64x1", group=0, round=number, **figures)


def test_a_run_without_an_end_is_partial_and_one_with_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out/run.jsonl"
    record = Recorder.begin(path, HEADER)
    measured(record, 0, output_throughput=10.0)
    assert "killed" in str(read(path).partial)
    record.finish("interrupted")
    assert read(path).partial == "interrupted"
    again = Recorder.resume(path, HEADER)
    assert list(again.run.measurements) == [("none", "64x1", 0, 0)]
    measured(again, 1, output_throughput=11.0)
    assert "killed" in str(read(path).partial)
    again.finish(None)
    assert read(path).partial is None and len(read(path).measurements) == 2
    assert all(json.loads(line)["kind"] for line in path.read_text().splitlines())


def test_every_prefix_of_the_bytes_is_a_valid_partial_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record = Recorder.begin(path, HEADER)
    first = path.stat().st_size
    record.add("answers", cell="64x1", tokens={0: [5, 6]})
    measured(record, 0, output_throughput=10.0)
    record.finish(None)
    content = path.read_bytes()
    for size in range(first, len(content)):
        path.write_bytes(content[:size])
        assert read(path).partial is not None
    for size in range(0, first, 7):  # killed while it wrote its first line
        path.write_bytes(content[:size])
        Recorder.resume(path, HEADER).finish(None)
        assert read(path).partial is None and read(path).header["settings"] == HEADER["settings"]
    path.write_bytes(content[:-20])
    torn = Recorder.resume(path, HEADER)
    torn.finish(None)
    assert read(path).answers == {"64x1": {0: [5, 6]}} and read(path).partial is None


def test_a_run_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Recorder.begin(path, HEADER).finish(None)
    with pytest.raises(RunFileError, match="another rounds"):
        Recorder.resume(path, {"settings": {"rounds": 3, "sides": ["none"]}})
    with pytest.raises(RunFileError, match="--resume"):
        Recorder.begin(path, HEADER)
    assert read(path).partial is None


def test_a_failed_side_is_forgotten_once_it_was_measured(tmp_path: Path) -> None:
    record = Recorder.begin(tmp_path / "run.jsonl", HEADER)
    record.add("failed", side="none", why="no memory")
    assert record.run.failed == {"none": "no memory"}
    measured(record, 0)
    assert record.run.failed == {}


@pytest.mark.parametrize("content", ["[]", '{"kind": "other"}', '{"kind":"run"}\n', "x"])
def test_a_file_that_is_not_a_first_line_cut_short_is_never_written_over(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content)
    for begin in (Recorder.begin, Recorder.resume):
        with pytest.raises(RunFileError):
            begin(path, HEADER)
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", "[]\n", '{"kind": "run"}\n', "x\n", '{"kind": "end"}\n'])
def test_what_is_no_run_is_refused_by_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(RunFileError, match=r"other\.jsonl"):
        read(path)
    with pytest.raises(RunFileError, match="No such file"):
        read(tmp_path / "none")


@pytest.mark.parametrize("arguments", [["report"], ["compare", "--json"]])
@pytest.mark.parametrize("settings", [{}, {"settings": None}, {"settings": [1]}])
def test_a_header_without_settings_is_refused_by_key(
    arguments: list[str], settings: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"kind": "run", "format": 1, **settings}) + "\n")
    command, *options = arguments
    files = [str(path)] * (2 if command == "compare" else 1)
    done = CliRunner().invoke(bench, [command, *files, *options])
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and "run.jsonl:1: settings = " in said and "is needed" in said


def test_a_comparison_names_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Recorder.begin(path, HEADER).finish(None)
    done = CliRunner().invoke(bench, ["compare", str(path), str(path)])
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and "run.jsonl:1: settings.cells is missing" in said


def test_a_report_names_what_its_files_need(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Recorder.begin(path, HEADER).finish(None)
    done = CliRunner().invoke(bench, ["report", str(path)])
    assert done.exit_code == 2 and "run.jsonl:1: host is missing" in " ".join(done.output.split())
    assert [one.name for one in tmp_path.iterdir()] == ["run.jsonl"]
