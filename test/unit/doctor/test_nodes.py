"""Records of two and three nodes: what differs is said, by node, before any of them meets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kit.recipes import FACTS, recipe
from sglang_spec.doctor.command import doctor
from sglang_spec.doctor.record import NodeRecord

LEADER = "10.0.0.1:20000"
TWO = ["nodes.count=2", f"nodes.leader={LEADER}", "machine.gpus=4"]


def written(
    folder: Path, rank: int, *changes: str, facts: str | None = "h200-x8", of: int = 2
) -> Path:
    """A record of node `rank`, by the command that writes it."""
    path = folder / f"node-{rank}.json"
    given = [*TWO, f"nodes.count={of}", f"nodes.rank={rank}", *changes]
    sets = [word for change in given for word in ("--set", change)]
    arguments = ["node", str(recipe("kimi-k2.5-h200")), "--name", f"node-{rank}", *sets]
    arguments += ["--facts", str(FACTS / f"{facts}.json")] if facts else []
    arguments += ["--output", str(path)]
    result = CliRunner().invoke(doctor, arguments)
    assert result.exit_code == 0, result.output
    return path


def compared(*files: Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(doctor, ["nodes", *map(str, files), "--json"])
    return result.exit_code, json.loads(result.stdout)


def said(*files: Path) -> str:
    return CliRunner().invoke(doctor, ["nodes", *map(str, files)]).stdout


def test_equal_nodes_agree(tmp_path: Path) -> None:
    files = [written(tmp_path, rank) for rank in range(2)]
    assert compared(*files) == (0, {"differences": [], "group": []})
    assert said(*files).startswith("node-0, node-1 agree in ")


def test_what_is_compared(tmp_path: Path) -> None:
    record = NodeRecord.load(written(tmp_path, 0))
    for key in ("pin", "patch set", "contract", "comm fusion", "flag --tp-size", "machine gpus"):
        assert key in record.compared
    assert len(record.compared["patch set"]) == 64
    text = record.dump()
    assert "secrets" not in text and "node-rank" not in text


@pytest.mark.parametrize(
    ("change", "key", "one", "other"),
    [
        ("limits.max_running_requests=256", "flag --max-running-requests", "256", "128"),
        ("draft.min_accept_length=1.5", "flag --speculative-min-accept-length", "1.5", None),
        ("model.trust_remote_code=false", "flag --trust-remote-code", None, True),
        ("comm.fusion=mnnvl", "flag --flashinfer-allreduce-fusion-backend", "mnnvl", "auto"),
    ],
)
def test_flags(tmp_path: Path, change: str, key: str, one: Any, other: Any) -> None:
    files = [written(tmp_path, 0), written(tmp_path, 1, change)]
    code, told = compared(*files)
    found = {diff["key"]: diff["said"] for diff in told["differences"]}
    assert code == 1 and found[key] == [[other, ["node-0"]], [one, ["node-1"]]]
    if not change.startswith("comm"):
        assert list(found) == [key]


def test_another_machine(tmp_path: Path) -> None:
    files = [written(tmp_path, 0)]
    changes = ["machine.name=B200", "machine.capability='10.0'", "machine.memory_gib=170"]
    files.append(written(tmp_path, 1, *changes, facts="b200-x8"))
    code, told = compared(*files)
    keys = [diff["key"] for diff in told["differences"]]
    assert code == 1 and "machine gpus" in keys and "comm fusion" in keys
    assert not any(key.startswith("flag") for key in keys)


def test_a_variable_that_one_node_has_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from this machine, not replayed: the shell of a node is a part of it."""
    files = [written(tmp_path, 0, facts=None)]
    monkeypatch.setenv("NCCL_P2P_LEVEL", "PHB")
    files.append(written(tmp_path, 1, facts=None))
    assert said(*files) == "comm variable NCCL_P2P_LEVEL: node-1: PHB; but node-0: nothing\n"


@pytest.mark.parametrize("key", ["pin", "patch set", "contract slot 0", "package torch"])
def test_the_odd_one_of_three_is_named(tmp_path: Path, key: str) -> None:
    sizes = ("nodes.tp_size=9", "model.attention_heads=72")
    files = [written(tmp_path, rank, *sizes, of=3) for rank in range(3)]
    odd = NodeRecord.load(files[1])
    files[1].write_text(replace(odd, compared=odd.compared | {key: "another"}).dump())
    assert compared(*files)[0] == 1
    assert said(*files).startswith(f"{key}: node-1: another; but node-0, node-2: ")


def test_nodes_that_are_no_group(tmp_path: Path) -> None:
    alone = written(tmp_path, 0)
    code, told = compared(alone)
    assert code == 1 and told["group"] == ["records of 1 nodes, and the recipe is for 2"]
    other = tmp_path / "b.json"
    record = NodeRecord.load(alone)
    other.write_text(replace(record, node="b", leader="10.0.0.9:1").dump())
    told = compared(alone, other)[1]
    assert told["differences"] == []
    assert "rank 0 is claimed by node-0, b" in told["group"][0]
    assert "node-0: 10.0.0.1:20000; b: 10.0.0.9:1" in told["group"][1]


def test_wrong_records(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("{", "[]", '{"format": 0}', '{"format": 1, "odd": 1}'):
        path.write_text(text)
        result = CliRunner().invoke(doctor, ["nodes", str(path)])
        assert result.exit_code == 2 and str(path) in result.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [("nodes", "b"), ("rank", "0"), ("rank", True), ("node", 3), ("leader", 1), ("compared", [])],
)
def test_a_record_with_a_value_of_another_kind(tmp_path: Path, key: str, value: Any) -> None:
    path = written(tmp_path, 0)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    other = written(tmp_path, 1)
    result = CliRunner().invoke(doctor, ["nodes", str(path), str(other)])
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2 and f"{path}: {key} = {value!r}: " in said


def test_a_record_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    output = tmp_path / "none/x.json"
    arguments = ["node", str(recipe("embedded")), "--facts", str(FACTS / "none.json")]
    result = CliRunner().invoke(doctor, [*arguments, "--output", str(output)])
    assert result.exit_code == 2 and f"{output}: No such file" in " ".join(result.stderr.split())


def test_a_refused_recipe(tmp_path: Path) -> None:
    arguments = ["node", str(recipe("kimi-k2.5-h200")), "--set", "nodes.rank=7"]
    result = CliRunner().invoke(doctor, arguments)
    assert result.exit_code == 1 and "nodes.rank" in result.stderr
