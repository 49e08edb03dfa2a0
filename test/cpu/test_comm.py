"""The communication plan of real launches, with the facts of other machines replayed on the CPU."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path

import httpx
import pytest
from kit.faulty_server import FaultyServer
from kit.servers import LOGS, ServerPool, spawner
from sglang_spec import host, process
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

MACHINES = Path(__file__).resolve().parents[1] / "unit/comm/data"
FACTS = "SGLANG_SPEC_COMM_FACTS"
# How a request ends whose server does: the connection is closed, or cut. A hang would be a timeout.
CUT = (httpx.RemoteProtocolError, httpx.ReadError)


def over_two_ranks(pair: Pair, machine: str, *extra: str) -> Launch:
    """EAGLE3 over two ranks on the CPU, believing that it runs on a recorded machine."""
    arguments = ["--tp-size", "2", "--sleep-on-idle", "--skip-speculative-self-test", *extra]
    environment = {FACTS: str(MACHINES / f"{machine}.json")}
    return Launch(pair.target, Speculation(pair.draft, 3, 1, 4), "bfloat16", arguments, environment)


def test_fusion_on_sm120_is_refused_before_a_rank_exists(servers: ServerPool, tiny: Pair) -> None:
    launch = over_two_ranks(tiny, "rtx-pro-6000-x2", "--enable-flashinfer-allreduce-fusion")
    log = LOGS / "test-comm-refused.log"
    environment = {**host.engine_environment(), **launch.environment}
    child = spawner(servers.zygote)(launch.command(process.free_port()), log, environment)
    try:
        assert child.wait(600) != 0
    finally:
        process.stop(child)
    text = log.read_text(errors="replace")
    assert "communication settings that cannot be met on this machine" in text
    assert "--flashinfer-allreduce-fusion-backend auto: FlashInfer's fused all-reduce" in text
    assert "SM120" in text and " TP0]" not in text


def test_the_plan_is_in_the_log_and_in_server_info(servers: ServerPool, tiny: Pair) -> None:
    """Applied, so that the ranks have the environment of the plan; on a CPU it changes nothing."""
    launch = over_two_ranks(tiny, "rtx-pro-6000-x2-broken-peers", "--speculative-comm-plan", "auto")
    launch = dataclasses.replace(
        launch, environment={**launch.environment, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    )
    with servers.start(launch, "comm-plan") as server:
        server.wait_ready()
        info = httpx.get(f"{server.url}/server_info", timeout=120).json()
        log = server.log_tail(4000)
    plan = info["spec_hardening"]["communication"]
    assert plan["applied"] and plan["fabric"] == "PCIe only"
    assert any(line.startswith("  verify, 1 request") for line in plan["table"])
    assert "NCCL_P2P_DISABLE=1 [plan]" in log
    assert "CUDA_DEVICE_MAX_CONNECTIONS=32 [you]" in log
    in_use = info["communication_in_use"]
    assert in_use["variables"]["NCCL_P2P_DISABLE"] == "1"
    assert in_use["variables"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert in_use["ranks"] == 2 and in_use["custom_all_reduce"] is None
    assert info["disable_custom_all_reduce"] is True


def test_ranks_that_accept_differently_end_within_the_rate(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    """One rank accepts a draft less from a step on; compared every 8 steps, named exactly."""
    every, cycles = 8, 20
    arguments = ["--tp-size", "2", "--sleep-on-idle", "--skip-speculative-self-test"]
    launch = Launch(
        tiny.target,
        Speculation(tiny.draft, 3, 1, 4),
        "bfloat16",
        [*arguments, "--speculative-rank-check", str(every)],
    )
    prompt = [0, *range(70, 110)]
    with FaultyServer(servers, launch, tmp_path / "fault", "rank-check") as faulty:
        whole = faulty.client.generate(prompt, 1 + cycles * 4, ignore_eos=True)
        assert whole.correct_drafts == (0, 0, 0, cycles)
        time.sleep(1.5)  # the last comparison, which is not waited for by a request
        assert faulty.server.returncode is None
        faulty.plant("accept 1")
        with pytest.raises(CUT):
            faulty.client.generate(prompt, 1200, ignore_eos=True)
        deadline = time.monotonic() + 300
        while faulty.server.returncode is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert faulty.server.returncode not in (None, 0)
        log = faulty.server.log.read_text(errors="replace")
    named = re.search(
        r"ranks disagree: rank 0: verify step (\d+): accept lengths \[4\], tokens .*; "
        r"rank 1: verify step (\d+): accept lengths \[3\], tokens .* "
        r"\(found at verify step (\d+)\)",
        log,
    )
    assert named is not None
    first, second, found = map(int, named.groups())
    assert first == second > cycles
    # Steps are gathered by eight, or the answer would have come. The thread that compares waits for
    # a processor as others do, and decoding goes on meanwhile.
    assert found - first <= 40 * every
    final = [line for line in log.splitlines() if "failed in stage" in line]
    assert final and "ranks disagree: rank 0: verify step" in final[-1]
