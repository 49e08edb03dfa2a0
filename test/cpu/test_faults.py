"""A fault anywhere ends the whole tree by name, or turns health red; no silent half-life."""

from __future__ import annotations

import re
from itertools import combinations, product
from pathlib import Path

import pytest
from kit import fault_matrix
from kit.broken_server import run_broken
from kit.fault_run import Outcome, Plan, run_engine, run_server
from kit.servers import ServerPool
from sglang.srt.spec_hardening import stages
from sglang_spec import host
from sglang_spec.models import Pair

pytestmark = pytest.mark.skipif(host.device() != "cpu", reason="forks from a preloaded process")


def _raised(outcome: Outcome) -> str:
    kinds = [event["kind"] for event in outcome.events if event["event"] == "raised"]
    assert kinds == ["EngineDeadError"], (outcome.events, outcome.log)
    return outcome.line


@pytest.mark.parametrize("thread", [False, True], ids=["main-thread", "other-thread"])
def test_engine_caller_gets_an_exception(servers: ServerPool, tiny: Pair, thread: bool) -> None:
    """The rank leaves with SystemExit(0) while it serves, which upstream takes for health."""
    plan = Plan("serving_verify:exit")
    outcome = run_engine(servers.zygote, tiny, plan, thread=thread)
    assert outcome.code == 0 and outcome.events[-1]["event"] == "alive", outcome
    assert [event["event"] for event in outcome.events] == ["ready", "raised", "alive"]
    assert outcome.events[0]["self_test"]["state"] == "proven"
    assert (
        "rank TP0" in _raised(outcome) and "stage serving (verify): SystemExit: 0" in outcome.line
    )
    assert not outcome.left


def test_a_sigquit_handler_of_the_callers_own_is_called_and_does_not_hide_the_death(
    servers: ServerPool, tiny: Pair
) -> None:
    """Upstream's Engine waits for ever here once the ranks were up: the handler returns."""
    outcome = run_engine(servers.zygote, tiny, Plan("draft_model:raise"), handler=True)
    assert [event["event"] for event in outcome.events] == ["handler", "raised", "alive"]
    assert "stage draft_model" in _raised(outcome)
    assert outcome.code == 0 and not outcome.left


def test_an_engine_without_a_front_end_takes_its_ranks_with_it(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    """Upstream's go on to load, and hold the device until the caller's process ends."""
    missing = str(tmp_path / "none.jinja")
    plan = Plan("", arguments=("--chat-template", missing))
    outcome = run_engine(servers.zygote, tiny, plan)
    assert [event["event"] for event in outcome.events] == ["raised", "alive"], outcome
    assert missing in outcome.line and outcome.events[1]["children"] == 0, outcome
    assert outcome.code == 0 and not outcome.left, outcome


@pytest.mark.parametrize(
    ("how", "stage", "says"),
    [("memory", "draft_pool", "(?i)allocate memory"), ("crash", "lm_head", "SIGSEGV")],
)
def test_a_real_failure_is_named_like_an_injected_one(
    servers: ServerPool, tiny: Pair, how: str, stage: str, says: str
) -> None:
    """The allocator refuses; native code reads where nothing is."""
    outcome = run_broken(servers.zygote, tiny, f"{how} {stage}")
    assert outcome.code == 1 and not outcome.greens and not outcome.left, outcome
    assert "rank TP0" in outcome.line and f"stage {stage}" in outcome.line, outcome
    assert re.search(says, outcome.line), outcome


@pytest.mark.full
@pytest.mark.parametrize("kind", stages.CONTROL_KINDS)
def test_a_data_parallel_rank_is_no_child_and_not_missed(
    servers: ServerPool, tiny: Pair, kind: str
) -> None:
    """Two ranks behind a controller, which looks after none of them; 10 s for each kind."""
    arguments = ("--dp-size", "2", "--speculative-verify-timeout", "2")
    binding = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    outcome = run_server(
        servers.zygote, tiny, Plan(f"serving_verify:{kind}", 1, arguments, binding)
    )
    said = outcome.line if outcome.code else outcome.reds[-1]
    assert outcome.code == (None if kind == "hang" else 1) and not outcome.left, outcome
    assert re.search(r"rank DP\d TP0 ?.*stage serving \(verify\)", said), outcome


# Its first request that is not a probe asks for a room, and a request of a test has none.
NO_ROOM = ("--dp-size", "2", "--load-balance-method", "follow_bootstrap_room")
TWO_CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


def test_a_controller_that_fails_is_an_exception_of_an_engine_in_a_thread(
    servers: ServerPool, tiny: Pair
) -> None:
    """Upstream's sends a SIGQUIT, which kills the caller."""
    plan = Plan("", 1, NO_ROOM, TWO_CORES)
    outcome = run_engine(servers.zygote, tiny, plan, thread=True)
    assert [event["event"] for event in outcome.events] == ["ready", "raised", "alive"], outcome
    said = r"data-parallel controller \(pid \d+\) failed in stage serving: AssertionError: "
    assert re.match(said, _raised(outcome)), outcome
    assert outcome.code == 0 and not outcome.left, outcome


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "stage", "says"),
    [
        ("", "serving", "AssertionError"),
        ("controller thread", "arguments", "RuntimeError: broken"),
        ("controller begin", "arguments", "RuntimeError: broken"),
        ("detokenizer loop", "serving", "RuntimeError: broken"),
    ],
)
def test_a_process_beside_the_ranks_that_fails_ends_the_server_by_its_name(
    servers: ServerPool, tiny: Pair, how: str, stage: str, says: str
) -> None:
    """5 to 10 s each. Where a thread of the controller fails, upstream waits for it for ever."""
    if how:
        arguments = ("--dp-size", "2")
        outcome = run_broken(servers.zygote, tiny, how, arguments, environment=TWO_CORES)
    else:
        outcome = run_server(servers.zygote, tiny, Plan("", 1, NO_ROOM, TWO_CORES))
    name = "detokenizer" if "detokenizer" in how else "data-parallel controller"
    assert outcome.code == 1 and not outcome.left, outcome
    said = rf"{name} \(pid \d+\) failed in stage {stage}: {says}"
    assert re.search(said, outcome.line), outcome


@pytest.mark.full
@pytest.mark.parametrize("stage", ["draft_pool", "serving_verify"])
@pytest.mark.parametrize(("rank", "ranks"), [(3, 4), (5, 8)])
def test_a_rank_of_many_that_is_killed_ends_all_by_its_name(
    servers: ServerPool, tiny: Pair, rank: int, ranks: int, stage: str
) -> None:
    """Each of the others fails too, for want of it, and is not the one to name. Without the
    self-test, so the first probe is what decodes; 10 s for each."""
    arguments = ("--skip-speculative-self-test",)
    patient = {"SGLANG_SPEC_STAGE_TIMEOUT": "300"}
    plan = Plan(f"{stage}:kill:{rank}", ranks, arguments, patient)
    outcome = run_server(servers.zygote, tiny, plan, 400)
    assert outcome.code == 1 and not outcome.left, outcome
    assert not outcome.greens, outcome
    where = "serving (verify)" if stage.startswith("serving") else stage
    said = rf"rank TP{rank} \(pid \d+\) failed in stage {re.escape(where)}: .*SIGKILL"
    assert re.search(said, outcome.line), outcome


def test_the_pairwise_rows_cover_every_pair_and_stage() -> None:
    rows = fault_matrix.pairwise()
    phase_of = {stage: name for name, phase in fault_matrix.PHASES.items() for stage in phase}
    assert {row.stage for row in rows} == set(phase_of)
    assert len(phase_of) >= 12
    assert set(stages.BY_NAME) - {"serving"} <= set(phase_of)
    levels = {
        "phase": list(fault_matrix.PHASES),
        "kind": list(stages.CONTROL_KINDS),
        "front": list(fault_matrix.FRONTS),
        "tp": list(fault_matrix.SIZES),
    }
    seen = [(phase_of[row.stage], row.kind, row.front, row.tp) for row in rows]
    for (a, first), (b, second) in combinations(enumerate(levels.values()), 2):
        assert set(product(first, second)) <= {(row[a], row[b]) for row in seen}, (a, b)


@pytest.mark.parametrize("row", fault_matrix.pairwise(), ids=lambda row: row.id)
def test_a_fault_ends_the_tree_or_turns_health_red(
    servers: ServerPool, tiny: Pair, row: fault_matrix.Row
) -> None:
    outcome = fault_matrix.run(row, servers.zygote, tiny)
    assert not fault_matrix.faults_of(row, outcome), outcome


@pytest.mark.full
@pytest.mark.parametrize("row", fault_matrix.whole(), ids=lambda row: row.id)
def test_every_fault(servers: ServerPool, tiny: Pair, row: fault_matrix.Row) -> None:
    """Hundreds of starts of 5 to 15 s each: most of an hour on two cores."""
    outcome = fault_matrix.run(row, servers.zygote, tiny)
    assert not fault_matrix.faults_of(row, outcome), outcome
