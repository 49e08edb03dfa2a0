"""Records of machines: what is written is read back, and what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sglang_spec.comm import record

from .conftest import DATA, MACHINES


@pytest.mark.parametrize("name", MACHINES)
def test_a_record_says_what_it_is_and_is_written_as_it_was_read(
    comm: Any, machine: Any, name: str
) -> None:
    facts = machine(name)
    assert facts.dump() == (DATA / f"{name}.json").read_text(encoding="utf-8")
    assert facts.origin == "recorded" or any("composed" in note for note in facts.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": []}, "gpu: unknown key"),
        ({"links": [["X"]]}, "links: 8 rows of 8"),
        ({"peers": {"state": "maybe"}}, "peers.state: 'maybe'"),
        ({"origin": "guessed"}, "origin: 'guessed'"),
        ({"gpus": [{"nam": "x", "capability": [9, 0]}]}, "nam"),
    ],
)
def test_a_wrong_record_is_named(
    comm: Any, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    content = json.loads((DATA / "h200-x8.json").read_text(encoding="utf-8"))
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(comm.FactsError, match=message) as caught:
        comm.Facts.load(path)
    assert str(path) in str(caught.value)


def test_words_for_a_fabric(machine: Any) -> None:
    assert machine("h200-x8").fabric(8) == "NVLink between all"
    assert machine("rtx-pro-6000-x8-two-sockets").fabric(8) == "PCIe only, across NUMA nodes"
    assert machine("rtx-pro-6000-x8-two-sockets").fabric(4) == "PCIe only"
    assert machine("rtx-pro-6000-x8-one-socket").fabric(8) == "PCIe only, switches"


def test_a_plan_file_comes_back(comm: Any, machine: Any, tmp_path: Path) -> None:
    facts = machine("rtx-pro-6000-x4")
    path = tmp_path / "plan.json"
    plan = comm.Measured(str(path), 4, facts.machine(4), {"NCCL_PROTO": "LL"}, False, 4096, "why")
    path.write_text(plan.dump(), encoding="utf-8")
    assert comm.Measured.load(path) == plan
    assert comm.Measured.load(path).misfit(facts, 4) == ""
    for broken in ("[]", '{"schema": 1, "typ_size": 4}', '{"schema": 7}', "{"):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(comm.MeasuredError, match=r"plan\.json"):
            comm.Measured.load(path)


def test_a_plan_of_some_of_the_gpus_is_bound_to_those(comm: Any, machine: Any) -> None:
    """`comm-bench --ranks 4` and a launch with `--tp-size 4`, both on a host with eight GPUs."""
    whole = machine("rtx-pro-6000-x8-two-sockets")
    results = {
        "setups": {
            "as-is": {
                "chosen": {"nccl": "plain", "custom": True, "ipc_bytes": 0, "ratio": 1.0},
                "candidates": {"plain": {}},
                "plain": "NCCL",
            }
        },
        "provenance": {"date": "2026-11-30", "ranks": 4},
    }
    plan = record.measured(results, whole, "plan.json")
    assert len(plan.machine["gpus"]) == 4
    # A launch knows the GPUs of its ranks, `doctor comm` all of the host.
    for here in (whole, whole.only(range(4))):
        assert plan.misfit(here, 4) == ""
    assert plan.misfit(whole, 8).startswith("tp_size: measured with 4 ranks")
    assert plan.misfit(machine("h200-x8"), 4).startswith("machine.gpus: measured on")
