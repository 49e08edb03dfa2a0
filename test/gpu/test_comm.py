"""Communication on two GPUs or more: peers, votes over NCCL, servers, and the benchmark.

With $OUT set, the figures of the benchmark, its plan and its picture are left there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
from kit import gpus, voters
from kit.servers import ServerPool
from sglang_spec.comm import bench
from sglang_spec.comm.command import comm_bench
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.server import Launch, Speculation

pytestmark = gpus.needs(2)


def test_peers_can_be_written_and_the_fabric_is_read() -> None:
    from sglang.srt.spec_hardening.comm.core import Facts
    from sglang.srt.spec_hardening.comm.gather import gather

    facts = gather(test_peers=True)
    assert len(facts.gpus) >= 2 and facts.fabric(2) != "one GPU"
    assert facts.peers.state == "works", facts.peers
    assert Facts.from_dict(json.loads(facts.dump())) == facts
    if out := os.environ.get("OUT"):
        Path(out, "facts.json").write_text(facts.dump(), encoding="utf-8")


def test_a_fault_in_one_rank_takes_the_custom_all_reduce_from_both() -> None:
    found = voters.run(voters.build_groups, 2, "none end", timeout=300)
    assert all("raised" not in one for one in found), found
    assert [one["none"]["custom"] for one in found] == [True, True]
    assert [one["end"]["custom"] for one in found] == [False, False]
    assert [one[fault]["total"] for one in found for fault in ("none", "end")] == [3.0] * 4
    assert {one["end"]["outcome"] for one in found} == {"rank 1: RuntimeError: planted at the end"}


@pytest.fixture(scope="module")
def tiny() -> Pair:
    return tiny_pair()


def test_two_ranks_serve_with_a_plan_and_watch_each_other(servers: ServerPool, tiny: Pair) -> None:
    """Equal tokens with one rank and two, every draft accepted, the plan and its outcome shown."""
    prompt, cycles = [0, *range(70, 110)], 30
    speculation = Speculation(tiny.draft, 3, 1, 4)
    tokens = []
    for extra in (
        [],
        ["--tp-size", "2", "--speculative-comm-plan", "auto", "--speculative-rank-check", "8"],
    ):
        launch = Launch(tiny.target, speculation, arguments=[*extra, "--cuda-graph-max-bs", "8"])
        client = servers.client(launch)
        answer = client.generate(prompt, 1 + 4 * cycles, ignore_eos=True)
        assert answer.correct_drafts == (0, 0, 0, cycles)
        tokens.append(answer.tokens)
    assert tokens[0] == tokens[1]
    info = httpx.get(f"{servers.server(launch).url}/server_info", timeout=30).json()
    assert info["spec_hardening"]["communication"]["applied"]
    in_use = info["communication_in_use"]
    assert in_use["ranks"] == 2
    chosen = {one["name"]: one for one in info["spec_hardening"]["communication"]["choices"]}
    assert bool(in_use["custom_all_reduce"]) is chosen["custom_all_reduce"]["on"]


def test_the_benchmark_chooses_nothing_that_is_slower(tmp_path: Path) -> None:
    out = Path(os.environ.get("OUT", tmp_path))
    files = [str(out / name) for name in ("comm.json", "plan.json", "comm.png")]
    arguments = ["--ranks", "2", "--output", files[0], "--plan", files[1], "--picture", files[2]]
    comm_bench.main(arguments, standalone_mode=False)
    results = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    for name, setup in results["setups"].items():
        assert setup["failed"] == {}, (name, setup["failed"])
        assert {str(size) for size in bench.DECODE_SIZES} <= set(setup["microseconds"])
        assert setup["chosen"]["ratio"] <= 1.05, (name, setup["chosen"])
