"""Communication on two GPUs or more: peers, votes over NCCL, a server, and the benchmark.

With $OUT set, the figures of the benchmark, its plan, its picture and the facts are left there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
from kit import decode_checks, gpus, voters
from kit.decode_setups import Setup
from kit.servers import ServerPool
from sglang_spec.comm import bench
from sglang_spec.comm.command import comm_bench
from sglang_spec.models.tiny import TINY, Oracle

pytestmark = gpus.needs(2)

PLANNED = Setup(
    "tp2-plan",
    "triton",
    ("--speculative-comm-plan", "auto", "--speculative-rank-check", "8"),
    largest_graph=16,
    tp=2,
    environment={"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"},
)


def peers_can_be_reached() -> bool:
    import torch

    return torch.cuda.can_device_access_peer(0, 1)


def test_what_the_driver_says_of_peers_is_tested() -> None:
    from sglang.srt.spec_hardening.comm.core import Facts
    from sglang.srt.spec_hardening.comm.gather import gather

    facts = gather(test_peers=True)
    if out := os.environ.get("OUT"):
        Path(out, "facts.json").write_text(facts.dump(), encoding="utf-8")
    assert facts.capability(2) is not None
    assert facts.peers.state == ("works" if peers_can_be_reached() else "broken"), facts.peers
    assert Facts.from_dict(json.loads(facts.dump())) == facts


def test_a_fault_in_one_rank_takes_the_custom_all_reduce_from_both() -> None:
    if not peers_can_be_reached():
        pytest.skip("no custom all-reduce: the driver says that peers cannot be reached")
    found = voters.run(voters.build_groups, 2, "none end", timeout=200)
    if out := os.environ.get("OUT"):
        Path(out, "votes.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    assert all("raised" not in one for one in found), found
    assert [one["none"]["custom"] for one in found] == [True, True], found
    assert [one["end"]["custom"] for one in found] == [False, False], found
    assert [one[fault]["total"] for one in found for fault in ("none", "end")] == [3.0] * 4
    planted = "rank 1: RuntimeError: planted at the end"
    assert {one["end"]["outcome"] for one in found} == {planted}, found


def test_two_ranks_serve_with_a_plan_and_watch_each_other(servers: ServerPool) -> None:
    """Tokens and accept lengths by the oracle; the plan and what came of it in server_info."""
    client = servers.client(PLANNED.launch())
    oracle = Oracle(TINY)
    for size in (1, 16, 40):
        decode_checks.batch(client, oracle, size)
    decode_checks.accept_lengths(client, oracle, PLANNED.steps)
    url = servers.server(PLANNED.launch()).url
    info = httpx.get(f"{url}/server_info", timeout=30).json()
    plan, in_use = info["spec_hardening"]["communication"], info["communication_in_use"]
    assert plan["applied"] and in_use["ranks"] == 2
    custom = next(one for one in plan["choices"] if one["name"] == "custom_all_reduce")
    assert bool(in_use["custom_all_reduce"]) is custom["on"]
    assert in_use["votes"].get("custom all-reduce", "all ranks") == "all ranks"


def test_the_benchmark_chooses_nothing_that_is_slower(tmp_path: Path) -> None:
    out = Path(os.environ.get("OUT", tmp_path))
    files = [str(out / name) for name in ("comm.json", "plan.json", "comm.png")]
    arguments = ["--ranks", "2", "--output", files[0], "--plan", files[1], "--picture", files[2]]
    comm_bench.main(arguments, standalone_mode=False)
    results = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    for name, setup in results["setups"].items():
        assert set(setup["failed"]) <= {"pcie_ipc"}, (name, setup["failed"])
        assert {str(size) for size in bench.DECODE_SIZES} <= set(setup["microseconds"])
        assert setup["chosen"]["ratio"] <= 1.05, (name, setup["chosen"])
