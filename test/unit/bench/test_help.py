"""`--help` of the measuring commands fits a screen, and its examples are right."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.bench.runfile import Recorder
from sglang_spec.cli import main

COMMANDS = ("bench", "bench run", "bench report", "bench compare", "sweep", "canary", "advise")
OTHERS = ("smoke", "doctor", "doctor threshold", "doctor kv", "top", "report", "demo", "roll")
SCREEN = 42  # lines of 100 columns


def help_of(command: str) -> str:
    done = CliRunner().invoke(main, [*command.split(), "--help"], terminal_width=100)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS])
def test_help_fits_a_screen(command: str) -> None:
    lines = help_of(command).splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= 100


def examples() -> list[tuple[str, str]]:
    found = []
    for command in COMMANDS:
        text = help_of(command)
        found += [(command, line) for line in re.findall(r"^[ A-Z:a-z]*?sglang-spec (.*)$", text,
                                                         re.MULTILINE)]  # fmt: skip
    return found


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that examples name."""
    monkeypatch.chdir(tmp_path)
    phases = ("decode", "decode_rest", "draft", "verify", "draft_extend", "cycle_rest")
    line = {"context": 64, "requests": [1, 8], **{phase: [1.0, 1.0] for phase in phases}}
    settings = {"sides": ["auto"], "cells": ["64x1"],
                "corpus": {"source": "t", "texts": 4, "sha256": "0"}}  # fmt: skip
    host = {"gpu": "g", "driver": "d", "python": "p", "packages": {}}
    header = {"settings": settings, "host": host, "argv": [], "checkpoints": {},
              "pin": {"version": "0", "spec": 1, "patch_set": "f", "changed": []}}  # fmt: skip
    facts = {"algorithm": "EAGLE3", "num_steps": 3, "topk": 1, "num_draft_tokens": 4,
             "kv_tokens": 9999, "most_requests": 8, "provenance": {},
             "threshold": {"milliseconds": [line]}}  # fmt: skip
    entry = {"output_throughput": 9.0, "cycles": 3, "cycles_per_s": 1.0, "accept_length": 2.0,
             "histogram": [1, 1, 1], "invalid": [], "mean_ttft_ms": 1.0}  # fmt: skip
    for folder in ("before", "after", "build/bench"):
        record = Recorder.begin(tmp_path / folder / "run.jsonl", header)
        record.add("side", side="auto", flags="", group=0, settings={"url": "u"}, facts=facts)
        record.add("measurement", side="auto", cell="64x1", group=0, round=0, **entry)
        record.finish(None)
    requests = ({"arrival": n, "prompt_tokens": 64, "output_tokens": 9} for n in range(3))
    Path("traffic.jsonl").write_text("".join(json.dumps(one) + "\n" for one in requests))


@pytest.mark.parametrize(("command", "example"), examples())
def test_examples_run(command: str, example: str, measured: None) -> None:
    words = shlex.split(example)
    assert words[0] == command.split()[0]
    starts: Any = words[0] in ("sweep", "canary") or words[1] == "run" or words[1][0] == "-"
    if starts:  # servers are not for a unit test
        at = words.index("--") if "--" in words else len(words)
        words[at:at] = ["--pair", "tiny", "--dry-run"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()


def test_all_commands_have_examples() -> None:
    assert {command for command, _ in examples()} == set(COMMANDS)
