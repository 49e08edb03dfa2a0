"""Failures that only a GPU has, and that the self-test is quick there.

The matrix of docs/faults.md runs on the CPU. Here: a graph capture that CUDA breaks off, memory
that the allocator does not have, faults around captured graphs, and the time of the self-test.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from kit.broken_server import run_broken
from kit.fault_run import Outcome, Plan, run_engine, run_server
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

# Small, so that a start takes seconds; kernels may be compiled on first use, hence the limit.
SMALL = (
    *("--mem-fraction-static", "0.15", "--max-total-tokens", "65536"),
    *("--max-running-requests", "16", "--cuda-graph-max-bs-decode", "8"),
    *("--context-length", "2048", "--chunked-prefill-size", "256"),
    *("--attention-backend", "triton"),
)
LIMIT = 300.0
PATIENT = {"SGLANG_SPEC_STAGE_TIMEOUT": str(LIMIT)}
SELF_TEST_S = 5.0


def _refused(outcome: Outcome, stage: str) -> str:
    """It ended as a failed start must; its last line."""
    assert outcome.code not in (None, 0), outcome
    assert not outcome.greens and not outcome.left, outcome
    assert "rank TP0" in outcome.line and f"stage {stage}" in outcome.line, outcome
    return outcome.line


@pytest.mark.parametrize("model", ["target", "draft"])
def test_a_capture_that_fails_ends_the_start_by_name(
    servers: ServerPool, tiny: Pair, model: str
) -> None:
    outcome = run_broken(servers.zygote, tiny, f"capture {model}", SMALL, LIMIT)
    line = _refused(outcome, f"{model}_graphs")
    assert re.search("(?i)captur", line), line


def test_a_capture_that_is_skipped_ends_the_start_by_name(servers: ServerPool, tiny: Pair) -> None:
    """Nothing throws: the server would decode eagerly."""
    outcome = run_broken(servers.zygote, tiny, "skip draft", SMALL, LIMIT)
    line = _refused(outcome, "invariants")
    for name in ("cuda_graph_runner", "cuda_graph_runner_for_draft_extend"):
        assert re.search(rf"EagleDraftWorker\.{name}\b", line), line


@pytest.mark.parametrize("stage", ["target_pool", "draft_graphs"])
def test_memory_that_is_not_there_ends_the_start_by_name(
    servers: ServerPool, tiny: Pair, stage: str
) -> None:
    line = _refused(run_broken(servers.zygote, tiny, f"memory {stage}", SMALL, LIMIT), stage)
    assert re.search("(?i)out of ?memory", line), line


def test_a_gpu_that_others_have_filled_is_said_to_be_full(servers: ServerPool, tiny: Pair) -> None:
    """All but 3 GiB are taken: weights fit, the KV cache does not."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(max(free - (3 << 30), 0), dtype=torch.uint8, device="cuda")
    try:
        plan = Plan("", arguments=SMALL, environment=PATIENT)
        outcome = run_server(servers.zygote, tiny, plan, LIMIT)
    finally:
        del taken
        torch.cuda.empty_cache()
    assert outcome.code not in (None, 0) and not outcome.greens and not outcome.left, outcome
    assert re.search(r"rank TP0 .*failed in stage \w+: .*(?i:memory)", outcome.line), outcome


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("draft_graphs:raise", "draft_graphs"),
        ("target_graphs:kill", "target_graphs"),
        ("draft_model:nan", ""),  # where it shows is the device's matter
        ("verify:nan", "self_test"),
        ("draft_extend:raise", "self_test (draft_extend)"),
    ],
)
def test_a_fault_around_captured_graphs_ends_the_start(
    servers: ServerPool, tiny: Pair, fault: str, stage: str
) -> None:
    plan = Plan(fault, arguments=SMALL, environment=PATIENT)
    _refused(run_server(servers.zygote, tiny, plan, LIMIT), stage)


def test_a_verify_that_hangs_on_the_device_side_of_the_loop_is_red(
    servers: ServerPool, tiny: Pair
) -> None:
    arguments = (*SMALL, "--speculative-verify-timeout", "2")
    plan = Plan("serving_verify:hang", arguments=arguments, environment=PATIENT)
    outcome = run_server(servers.zygote, tiny, plan, LIMIT)
    assert outcome.code is None and outcome.greens, outcome
    assert "rank TP0: no verify has returned" in outcome.reds[-1]


def test_the_caller_of_an_engine_gets_an_exception(servers: ServerPool, tiny: Pair) -> None:
    plan = Plan("draft_graphs:exit", arguments=SMALL, environment=PATIENT)
    outcome = run_engine(servers.zygote, tiny, plan, LIMIT)
    assert [event["event"] for event in outcome.events] == ["raised", "alive"], outcome
    assert "stage draft_graphs" in outcome.line and outcome.code == 0 and not outcome.left


@pytest.mark.parametrize("backend", ["triton", "flashinfer"])
def test_the_self_test_takes_seconds(
    servers: ServerPool, tiny: Pair, backend: str, record_property: Callable[[str, object], None]
) -> None:
    """Graphs are captured before it; the bound is the one promised for one H200."""
    arguments = (*SMALL[:-2], "--attention-backend", backend, "--skip-server-warmup")
    server = servers.server(Launch(tiny.target, Speculation(tiny.draft), arguments=arguments))
    found = httpx.get(f"{server.url}/server_info", timeout=60).json()["speculative_self_test"]
    record_property("self_test_seconds", found["seconds"])
    print(f"self-test with {backend}: {found['seconds']:.2f} s, {', '.join(found['modes'])}")
    assert found["state"] == "proven"
    assert {"greedy", "sampled", "prefix hit", "chunked prefill"} <= set(found["modes"])
    assert found["seconds"] <= SELF_TEST_S
