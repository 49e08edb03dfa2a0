"""`sglang-spec contract`: exit codes, the JSON form, and that it needs neither torch nor SGLang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kit.checkpoints import copy
from kit.faults import IDS
from sglang_spec.models.pair import Pair

# Runs the command and ends with 9 if it imported torch, the engine or transformers on the way.
GUARDED = """
import sys
for name in ("torch", "transformers", "numpy"):
    sys.modules[name] = None
from sglang_spec.cli import main
try:
    main()
except SystemExit as end:
    sys.exit(9 if "sglang" in sys.modules else end.code)
"""


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", GUARDED, "contract", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_accepted(tiny: Pair) -> None:
    done = _run("--target", tiny.target, "--draft", tiny.draft, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "accepted": True,
        "slots": [
            {"slot": 0, "takes": "output of layer 1", "loop_index": 2},
            {"slot": 1, "takes": "output of layer 3", "loop_index": 4},
            {"slot": 2, "takes": "output of layer 5", "loop_index": 6},
        ],
        "problems": [],
        "warnings": [],
    }
    text = _run("--target", tiny.target, "--draft", tiny.draft)
    assert "slot 0 takes output of layer 1 (loop index 2)" in text.stdout
    assert text.stdout.endswith("accepted\n")


def test_refused(tiny: Pair, tmp_path: Path) -> None:
    draft = copy(tiny.draft, tmp_path / "d", lambda c: c["eagle_config"].update({IDS: [-1, 1, 3]}))
    done = _run("--target", tiny.target, "--draft", draft, "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["accepted"] is False and told["slots"] == [] and told["warnings"] == []
    (problem,) = told["problems"]
    assert set(problem) == {"code", "file", "key", "value", "remedy"}
    assert problem["code"] == "ids-embedding"
    assert problem["file"] == str(draft / "config.json")
    assert problem["key"] == f"eagle_config.{IDS}[0]"
    assert problem["value"] == -1
    text = _run("--target", tiny.target, "--draft", draft)
    assert text.returncode == 1 and text.stdout == ""
    assert "[ids-embedding]" in text.stderr and "this is the embedding" in text.stderr


def test_usage() -> None:
    assert _run("--target", "somewhere").returncode == 2
    assert _run("--target", "a", "--draft", "b", "--tp", "0").returncode == 2


def test_tensor_parallel_size_and_strictness(tiny: Pair) -> None:
    pair = ("--target", tiny.target, "--draft", tiny.draft)
    refused = _run(*pair, "--tp", "3", "--json")
    assert refused.returncode == 1
    assert {problem["code"] for problem in json.loads(refused.stdout)["problems"]} == {"heads-tp"}
    online = ("--quantization", "fp8")
    assert _run(*pair, *online).returncode == 0
    assert _run(*pair, *online, "--strict").returncode == 1
