"""The `models` command: results on stdout, faults on stderr, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sglang_spec.models import Pair, cache
from sglang_spec.models.cli import main


def test_prepare_prints_folders(tiny: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "tiny", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"tiny": {"target": str(tiny.target), "draft": str(tiny.draft)}}


def test_path_prints_target_then_draft(tiny: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "tiny"]) == 0
    assert capsys.readouterr().out == f"{tiny.target}\n{tiny.draft}\n"


def test_a_deepseek_target_has_two_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    for draft in ("mla", "llama"):
        assert main(["path", "kimi", "--draft", draft, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert Path(printed["draft"]).name == f"draft-{draft}"
        assert (Path(printed["target"]) / "tokenizer.json").is_file()


def test_list_shows_what_is_made(tiny: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert tiny.target.parent.name in {entry["name"] for entry in printed["entries"]}


def test_empty_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "none"))
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"nothing made in {tmp_path / 'none'}\n")


def test_a_bad_source_fails_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "x.gguf").write_bytes(b"x")
    assert main(["prepare", "smollm2", "--source", str(tmp_path / "x.gguf")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: the GGUF from ")
    assert cache.entries() == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["prepare", "llama"],
        ["path", "tiny", "--heads", "12/4"],
        ["path", "kimi", "--heads", "12/4"],
        ["path", "tiny", "--draft", "mla"],
        ["path", "kimi", "--draft", "eagle"],
    ],
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2


def test_importing_needs_no_torch() -> None:
    code = "import sys, sglang_spec.models.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
