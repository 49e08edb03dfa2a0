"""`sglang-spec doctor` and `doctor comm`, as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from sglang_spec.doctor.command import doctor

from .conftest import DATA

TWO_SOCKETS = str(DATA / "rtx-pro-6000-x8-two-sockets.json")


def test_bare_it_tells_of_the_tree() -> None:
    result = CliRunner().invoke(doctor, ["--json"])
    content = json.loads(result.output)
    assert content["version"] == "0.5.23" and len(content["patch_set"]) == 64
    assert result.exit_code == (1 if content["changed"] or content["missing"] else 0)
    text = CliRunner().invoke(doctor, []).output
    assert "patch set" in text and "draft-contract" in text


def test_the_first_users_launch_is_refused_with_a_remedy() -> None:
    result = CliRunner().invoke(doctor, ["comm", "--facts", TWO_SOCKETS, "--fusion", "auto"])
    assert result.exit_code == 1
    assert "REFUSED: --flashinfer-allreduce-fusion-backend auto" in result.output


def test_a_recorded_machine_is_free_of_this_shell() -> None:
    arguments = ["comm", "--facts", TWO_SOCKETS, "--plan", "auto", "--json"]
    runner = CliRunner(env={"NCCL_P2P_LEVEL": "LOC"})
    plan = json.loads(runner.invoke(doctor, arguments).output)["plan"]
    values = {one["name"]: (one["value"], one["by"]) for one in plan["variables"]}
    assert values["NCCL_P2P_LEVEL"] == ("SYS", "plan")
    given = [*arguments, "--env", "NCCL_P2P_LEVEL=PHB"]
    plan = json.loads(runner.invoke(doctor, given).output)["plan"]
    values = {one["name"]: (one["value"], one["by"]) for one in plan["variables"]}
    assert values["NCCL_P2P_LEVEL"] == ("PHB", "you")


def test_facts_of_this_machine_can_be_saved_and_replayed(tmp_path: Path) -> None:
    saved = tmp_path / "facts.json"
    here = CliRunner().invoke(doctor, ["comm", "--save", str(saved), "--json"])
    again = CliRunner().invoke(doctor, ["comm", "--facts", str(saved), "--json"])
    assert json.loads(here.output)["facts"] == json.loads(again.output)["facts"]


def test_wrong_usage_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "facts.json"
    broken.write_text("{")
    recorded = ["--facts", TWO_SOCKETS]
    for arguments in (
        ["--facts", str(broken)],
        ["--env", "A"],
        ["--env", "=A"],
        ["--plan", str(broken)],
        [*recorded, "--test-peers"],
        [*recorded, "--tp-size", "8", "--nnodes", "3"],
        [*recorded, "--hidden-size", "0"],
        [*recorded, "--num-draft-tokens", "0"],
        [*recorded, "--max-bs", "-1"],
        [*recorded, "--save", str(tmp_path / "none" / "facts.json")],
        [*recorded, "--save", str(tmp_path)],
    ):
        result = CliRunner().invoke(doctor, ["comm", *arguments])
        assert result.exit_code == 2, (arguments, result.output)


def test_it_needs_no_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from sglang_spec.doctor.command import doctor\n"
        f"doctor(['comm', '--facts', {TWO_SOCKETS!r}], standalone_mode=True)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Communication: NVIDIA RTX PRO 6000")
