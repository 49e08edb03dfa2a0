"""The whole benchmark over gloo on the CPU: processes, rounds, results, plan and picture."""

from __future__ import annotations

import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.comm import bench
from sglang_spec.comm.choose import Choice
from sglang_spec.comm.command import comm_bench
from sglang_spec.comm.team import Late, Team, TeamError

from .conftest import MACHINES


def test_it_runs_from_ranks_to_picture(tmp_path: Path, comm: Any) -> None:
    files = {name: tmp_path / name for name in ("comm.json", "plan.json", "comm.png")}
    arguments = ["--device", "cpu", "--rounds", "2", "--sizes", "4096,65536"]
    arguments += ["--only", "plain,nccl-ll", "--set-up", "as-is", "--start-limit", "400"]
    arguments += ["--output", str(files["comm.json"]), "--plan", str(files["plan.json"])]
    result = CliRunner().invoke(comm_bench, [*arguments, "--picture", str(files["comm.png"])])
    assert result.exit_code == 0, result.output
    content = json.loads(files["comm.json"].read_text())
    assert set(content) == {"provenance", "partial", "facts", "setups", "decode_ratio"}
    assert content["partial"] == {}
    assert set(content["decode_ratio"]) == {"as-is"}
    assert content["provenance"]["sglang"] == "0.5.23" and content["provenance"]["ranks"] == 2
    for setup in content["setups"].values():
        assert setup["failed"] == {} and setup["plain"] == "gloo"
        for size in ("4096", "65536"):
            cells = setup["microseconds"][size]
            assert set(cells) == {"plain", "nccl-ll"}
            for cell in cells.values():
                assert 0 < cell["low"] <= cell["median"] <= cell["high"] and cell["rounds"] == 2
    facts = comm.Facts.from_dict(content["facts"])
    assert comm.Measured.load(files["plan.json"]).misfit(facts, 2) == ""
    pytest.importorskip("matplotlib")
    assert files["comm.png"].read_bytes().startswith(b"\x89PNG")


def test_a_rank_that_cannot_start_is_named(tmp_path: Path) -> None:
    spec = {"world": 1, "device": "cpu", "sizes": "wrong"}
    team = Team("plain", {}, spec, tmp_path / "team")
    try:
        with pytest.raises(TeamError, match=r"plain: rank 0: KeyError: 'custom'"):
            team.ready(time.monotonic() + 300)
    finally:
        team.end()


def test_a_rank_that_ends_without_a_word_is_named(tmp_path: Path) -> None:
    spec = {"world": 1, "device": "cpu", "sizes": [4096]}
    team = Team("plain", {}, spec, tmp_path / "team")
    team.end()  # by SIGKILL
    with pytest.raises(TeamError, match=r"plain: rank 0 ended: no words"):
        team.ready(time.monotonic() + 300)


class _Scripted(Team):
    """A team of no process that answers, until its round comes."""

    def __init__(self, name: str, ends: int) -> None:
        self.name, self.left = name, ends

    def round(self, timeout: float) -> dict[str, dict[int, float]]:
        self.left -= 1
        if self.left < 0:
            raise TeamError(f"{self.name}: rank 1: planted")
        return {"plain": {4096: 1.0}}


def test_a_candidate_that_ends_on_the_way_is_left_out() -> None:
    failures: dict[str, str] = {}
    teams: list[Team] = [_Scripted("plain", 9), _Scripted("a", 2), _Scripted("b", 9)]
    rounds = bench._rounds(teams, 4, failures)
    assert [set(one) for one in rounds] == [{"plain", "b"}] * 4
    assert failures == {"a": "a: rank 1: planted"}
    with pytest.raises(TeamError, match="plain: rank 1: planted"):
        bench._rounds([_Scripted("plain", 2), _Scripted("b", 9)], 4, {})


class _Slow(_Scripted):
    """A team that takes its time, of which there is no more than was said."""

    def __init__(self, name: str, took: float) -> None:
        super().__init__(name, 99)
        self.took, self.limits = took, list[float]()

    def round(self, timeout: float) -> dict[str, dict[int, float]]:
        self.limits.append(timeout)
        if self.took > timeout:
            time.sleep(max(0.0, timeout))
            raise Late(f"{self.name}: rank 0 does not answer")
        time.sleep(self.took)
        return super().round(timeout)


def test_whole_rounds_are_kept_when_the_time_is_over() -> None:
    failures: dict[str, str] = {}
    plain, hung = _Slow("plain", 0.0), _Slow("a", 0.0)

    def hang(timeout: float) -> dict[str, dict[int, float]]:
        hung.took = 0.0 if len(hung.limits) < 3 else 99.0
        return _Slow.round(hung, timeout)

    hung.round = hang  # type: ignore[method-assign]
    rounds = bench._rounds([plain, hung], 1000, failures, time.monotonic() + 1)
    assert [set(one) for one in rounds] == [{"plain", "a"}] * 2
    assert failures == {}, "a team that is cut short has not failed"


def test_no_whole_round_is_no_measurement() -> None:
    with pytest.raises(TeamError, match="no round was measured"):
        bench._rounds([_Slow("plain", 99.0)], 2, {}, time.monotonic() + 0.05)


class _Built(_Slow):
    """A team of no process, made as `bench` makes one."""

    def __init__(self, name: str, *rest: Any) -> None:
        super().__init__(name, 0.1)
        self.variables = {}

    def ready(self, deadline: float) -> dict[str, Any]:
        return {"notes": {"plain": "gloo"}, "nccl": None}

    def end(self) -> None:
        pass


def test_its_time_ends_it_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "Team", _Built)
    output, plan = tmp_path / "comm.json", tmp_path / "plan.json"
    arguments = ["--device", "cpu", "--rounds", "1000", "--sizes", "4096", "--only", "plain"]
    arguments += ["--seconds", "2", "--output", str(output), "--plan", str(plan)]
    result = CliRunner().invoke(comm_bench, arguments)
    assert result.exit_code == 0, result.output
    held = json.loads(output.read_text())
    rounds = held["setups"]["as-is"]["rounds"]
    over = f"its time was over after {rounds} of 1000 rounds"
    assert held["partial"] == {"as-is": over, "no-peers": "its time was over: it was not begun"}
    assert f"partial: set-up as-is: {over}" in result.stderr
    assert json.loads(plan.read_text())["why"].endswith(f"partial: {over}")


@pytest.mark.parametrize(
    "error, why",
    [(TeamError("plain: planted"), "plain: planted"), (KeyboardInterrupt(), "interrupted")],
)
def test_a_set_up_that_is_lost_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, why: str
) -> None:
    """The first set-up's figures and plan are kept, the file says what is missing."""
    cell = {"median": 2.0, "low": 1.0, "high": 3.0, "rounds": 1}
    chosen = bench._described(Choice(by_size={4096: "plain"}))

    def setup(name: str, *rest: Any) -> dict[str, Any]:
        if name == "no-peers":
            raise error
        sizes = {"4096": {"plain": cell}}
        return {
            "plain": "gloo",
            "failed": {},
            "rounds": 1,
            "candidates": {"plain": {}},
            "microseconds": sizes,
            "chosen": chosen,
        }

    monkeypatch.setattr(bench, "_setup", setup)
    files = [str(tmp_path / name) for name in ("comm.json", "plan.json")]
    arguments = ["--device", "cpu", "--rounds", "1", "--sizes", "4096", "--only", "plain"]
    arguments += ["--output", files[0], "--plan", files[1]]
    result = CliRunner().invoke(comm_bench, arguments)
    assert result.exit_code == 1, result.output
    assert f"set-up no-peers was not measured: {why}" in result.stderr
    held = json.loads(Path(files[0]).read_text())
    assert held["partial"] == {"no-peers": why} and set(held["setups"]) == {"as-is"}
    assert json.loads(Path(files[1]).read_text())["tp_size"] == 2


@pytest.mark.parametrize("name", MACHINES)
def test_candidates_differ_and_the_plan_is_among_them(machine: Any, name: str) -> None:
    for setup in ("as-is", "no-peers"):
        found = bench.candidates(setup, machine(name), 2)
        environments = [variables for one, variables in found.items() if one != "pcie_ipc"]
        assert len({json.dumps(one, sort_keys=True) for one in environments}) == len(environments)
        assert found["plain"] == {} and "pcie_ipc" in found
    if name == "rtx-pro-6000-x4":
        plan = bench.candidates("as-is", machine(name), 4)["nccl-plan"]
        assert plan["NCCL_P2P_LEVEL"] == "SYS"


@pytest.mark.parametrize(
    "arguments",
    [["--sizes", "1000"], ["--sizes", "x"], ["--only", "nccl-ll"], ["--device", "cuda"]],
)
def test_wrong_usage(arguments: list[str]) -> None:
    if (
        arguments[0] == "--device"
        and import_module("sglang_spec.hardening.comm.gather").gather().gpus
    ):
        pytest.skip("this host has a GPU")
    result = CliRunner().invoke(comm_bench, arguments)
    assert result.exit_code == 2, result.output


@pytest.mark.parametrize("option", ["--output", "--plan", "--picture"])
def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    monkeypatch.setattr(bench, "run", lambda settings: pytest.fail("it measured"))
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file" / "in"):
        arguments = ["--device", "cpu", "--rounds", "1", option, str(place)]
        result = CliRunner().invoke(comm_bench, arguments)
        assert result.exit_code == 2, result.output


@pytest.mark.parametrize("content", ["{", "[]", '{"setups": 1}', "{}"])
def test_a_file_that_comm_bench_did_not_write_is_named(tmp_path: Path, content: str) -> None:
    given = tmp_path / "given.json"
    given.write_text(content)
    result = CliRunner().invoke(comm_bench, ["--from", str(given)])
    assert result.exit_code == 2 and "Invalid value for --from" in result.output
