"""A sweep of real servers, a canary of real servers. The load generator takes its time to start."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.servers import ServerPool, spawner
from sglang_spec.bench import cells, mode, session, subject
from sglang_spec.bench.runner import Plan
from sglang_spec.models import Pair
from sglang_spec.models.alter import with_capture
from sglang_spec.server import Launch, Speculation
from sglang_spec.sweep import command, point

# Four servers or a load generator's imports for each test: more than every run has time for.
pytestmark = pytest.mark.full

LOAD = ("--pair", "tiny", "--context", "64", "--concurrency", "1,3", "--requests", "3",
        "--new-tokens", "16", "--rounds", "2", "--json")  # fmt: skip


def plan(folder: Path, rounds: int = 2) -> Plan:
    """None, one step, three steps, and a point whose server does not start."""
    tested = subject.subject("tiny", None, None, None)
    loads = cells.grid([64], [1, 3], [], 3, 16)
    made = subject.settings(tested, loads, 0, (), "bfloat16")
    points = [point.chain(1), point.chain(3), replace(point.chain(2), threshold="soon")]
    sides = (*subject.of_modes([mode.OFF], made), *(command.side(one, made) for one in points))
    return Plan(sides, loads, rounds, 2, tested.corpus, folder / "logs", go_on=True)


def header(of: Plan) -> dict[str, Any]:
    tested = subject.subject("tiny", None, None, None)
    names = [one.name for one in of.sides]
    loads = [cell.key for cell in of.cells]
    return subject.header(tested, {"sides": names, "cells": loads, "pruned": {}})


def test_a_sweep_names_the_best_and_goes_on_after_a_point_that_fails(
    servers: ServerPool, tmp_path: Path
) -> None:
    of = plan(tmp_path)
    spawn = spawner(servers.zygote)
    run, code = session.measure(
        of, header(of), tmp_path, False, "sweep", spawn=spawn, write=command.write
    )
    assert code == 0 and run.partial is None
    assert {group for _, _, group, _ in run.measurements} == {0, 1}
    assert list(run.failed) == ["2,1,3 off at soon"] and "soon" in run.failed["2,1,3 off at soon"]
    made = command.figures(run)
    for cell in made["cells"].values():
        assert cell["1,1,2"]["accept_length"] == 2.0 and cell["3,1,4"]["accept_length"] == 4.0
        assert all(one["valid"] for one in cell.values())
    assert {band["side"] for band in made["bands"]} <= {"none", "1,1,2", "3,1,4"}
    assert "## What to use" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "pareto.svg").exists()
    # All that is left to do on going on is the point that failed, and that is known.
    before = len(run.measurements)
    again, code = session.measure(
        of, header(of), tmp_path, True, "sweep", spawn=spawn, write=command.write
    )
    assert (len(again.measurements), code, again.partial) == (before, 0, None)


def canary(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    command_line = [sys.executable, "-m", "sglang_spec", "canary", *arguments, *LOAD]
    done = subprocess.run(
        [*command_line, "--output", str(folder)], capture_output=True, text=True, timeout=500
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_canary_passes_itself_and_stops_a_broken_draft(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    good = servers.server(Launch(tiny.target, Speculation(tiny.draft))).url
    # Its own speed on a busy host may differ, hence the low floor.
    code, told = canary(tmp_path / "same", good, good, "--fail-under", "0.2")
    assert (code, told["passed"]) == (0, True), told["verdict"]
    config = json.loads((tiny.draft / "config.json").read_text())
    right = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    wrong = with_capture(tiny.draft, tmp_path / "draft", [right[0] + 1, *right[1:]])
    bad = servers.server(Launch(tiny.target, Speculation(wrong))).url
    code, told = canary(tmp_path / "broken", good, bad)
    assert code == 1 and told["verdict"].startswith("B may not take the place of A: measurement")
    by_name = {check["name"]: check for check in told["checks"]}
    assert by_name["tokens"]["passed"] and by_name["acceptance"]["passed"] is False
    assert "position 1: 1.000 to 0.000" in by_name["acceptance"]["detail"]
    assert json.loads((tmp_path / "broken/verdict.json").read_text()) == told
