"""What decides, on small changes of recorded machines: who wins, what is refused, which sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import MACHINES

TWO_SOCKETS = "rtx-pro-6000-x8-two-sockets"
IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
NUMEL = "SGLANG_PCIE_IPC_MAX_NUMEL"


def first_user(comm: Any, **changes: Any) -> Any:
    return comm.Settings(**{"tp_size": 8, "num_draft_tokens": 4, "max_bs": 128, **changes})


def variables(plan: Any) -> dict[str, tuple[str, str]]:
    return {one.name: (one.value, one.by) for one in plan.variables}


def libraries(plan: Any) -> dict[str, str]:
    return {row.what: row.graph for row in plan.rows}


def test_a_plan_that_is_only_shown_sets_nothing(comm: Any, machine: Any) -> None:
    shown = comm.decide(machine(TWO_SOCKETS), first_user(comm), {})
    applied = comm.decide(machine(TWO_SOCKETS), first_user(comm), {}, apply=True)
    assert shown.to_set() == {}
    assert applied.to_set() == {
        IPC: "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_MIN_NCHANNELS": "8",
        "NCCL_P2P_LEVEL": "SYS",
    }
    assert set(libraries(shown).values()) == {"NCCL (pynccl)"}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
        ("NCCL_P2P_LEVEL", "PHB"),
        ("NCCL_MIN_NCHANNELS", "2"),
        ("NCCL_P2P_DISABLE", "0"),
        (IPC, "0"),
        (NUMEL, "4096"),
        ("NCCL_CUMEM_ENABLE", "1"),
    ],
)
def test_what_the_user_set_wins(
    comm: Any, machine: Any, name: str, variable: str, value: str
) -> None:
    settings = first_user(comm, tp_size=max(len(machine(name).gpus), 1))
    plan = comm.decide(machine(name), settings, {variable: value}, apply=True)
    assert variables(plan)[variable] == (value, "you")
    assert variable not in plan.to_set()


def test_the_message_counts_draft_tokens(comm: Any, machine: Any) -> None:
    facts = machine(TWO_SOCKETS)
    for tokens in (1, 4, 8):
        settings = first_user(comm, num_draft_tokens=tokens)
        plan = comm.decide(facts, settings, {}, apply=True)
        assert plan.choice("pcie_ipc").limit == 128 * tokens * 7168 * 2
        verify = "verify" if tokens > 1 else "decode"
        rows = {row.what: row for row in plan.rows}
        assert rows[f"{verify}, 8 requests"].bytes == 8 * tokens * 7168 * 2
        assert rows[f"{verify}, 128 requests"].graph == "PCIe-IPC"
        assert rows["prefill chunk"].graph == "NCCL (pynccl)"


def test_a_workspace_never_becomes_one_of_prefill(comm: Any, machine: Any) -> None:
    settings = first_user(comm, max_bs=512, num_draft_tokens=8)
    plan = comm.decide(machine(TWO_SOCKETS), settings, {}, apply=True)
    assert plan.choice("pcie_ipc").limit == 16 * 1024 * 1024
    assert plan.to_set()[NUMEL] == str(8 * 1024 * 1024)
    assert libraries(plan)["verify, 512 requests"] == "NCCL (pynccl)"
    assert libraries(plan)["verify, 32 requests"] == "PCIe-IPC"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"deterministic": True}, "order of sums"),
        ({"attention_dp": True}, "attention DP"),
        ({"second_stream": "two-batch overlap"}, "two-batch overlap"),
        ({"dtype": "float16"}, "bfloat16 only"),
        ({"nnodes": 2}, "one host"),
        ({"tp_size": 6}, "2, 4 or 8 ranks"),
    ],
)
def test_pcie_ipc_stays_off_where_it_cannot_serve(
    comm: Any, machine: Any, changes: dict[str, Any], why: str
) -> None:
    plan = comm.decide(machine(TWO_SOCKETS), first_user(comm, **changes), {}, apply=True)
    choice = plan.choice("pcie_ipc")
    assert not choice.on and why in choice.why
    assert IPC not in plan.to_set()


def test_peers_that_were_not_tested_are_not_taken_for_granted(comm: Any, machine: Any) -> None:
    facts = replace(machine(TWO_SOCKETS), peers=comm.PeerTest())
    plan = comm.decide(facts, first_user(comm), {}, apply=True)
    assert not plan.choice("pcie_ipc").on
    assert plan.to_set() == {}


def test_broken_peers(comm: Any, machine: Any) -> None:
    facts = machine("rtx-pro-6000-x2-broken-peers")
    settings = first_user(comm, tp_size=2)
    applied = comm.decide(facts, settings, {}, apply=True)
    assert applied.to_set() == {"NCCL_P2P_DISABLE": "1"}
    assert not applied.choice("custom_all_reduce").on
    shown = comm.decide(facts, settings, {})
    assert any("sums may be wrong" in one for one in shown.warnings)
    assert libraries(shown)["verify, 1 request"] == "custom all-reduce (legacy)"


@pytest.mark.parametrize("backend", ["auto", "trtllm", "mnnvl", "cutedsl"])
def test_fusion_is_refused_on_sm120(comm: Any, machine: Any, backend: str) -> None:
    plan = comm.decide(machine(TWO_SOCKETS), first_user(comm, fusion_backend=backend), {})
    with pytest.raises(comm.CommunicationError, match=f"{backend}.*SM120.*Leave out"):
        plan.check()


@pytest.mark.parametrize(
    ("name", "changes", "refused"),
    [
        ("h200-x8", {"fusion_backend": "auto"}, False),
        ("h200-x8", {"fusion_backend": "cutedsl"}, True),
        ("h200-x8", {"fusion_backend": "auto", "nnodes": 2, "tp_size": 16}, True),
        ("b200-x8", {"fusion_backend": "cutedsl"}, False),
        ("b200-x8", {"fusion_backend": "trtllm", "nnodes": 2, "tp_size": 16}, True),
        ("b200-x8", {"fusion_backend": "auto", "nnodes": 2, "tp_size": 16}, False),
        (TWO_SOCKETS, {"fusion_backend": "auto", "enforce_disable_fusion": True}, False),
        (TWO_SOCKETS, {"fusion_backend": "auto", "nnodes": 2, "tp_size": 16}, True),
        ("none", {"fusion_backend": "auto"}, False),
    ],
)
def test_fusion_elsewhere(
    comm: Any, machine: Any, name: str, changes: dict[str, Any], refused: bool
) -> None:
    plan = comm.decide(machine(name), first_user(comm, **changes), {})
    assert bool(plan.refusals) is refused


@pytest.mark.parametrize(
    ("changes", "facts_change", "why"),
    [
        ({"tp_size": 6}, {}, "6"),
        ({"dtype": "float16"}, {}, "float16"),
        ({}, {"pcie_ipc": False}, "does not have it"),
        ({"deterministic": True}, {}, "the order of its sums follows"),
        ({"attention_dp": True}, {}, "groups that it does not serve"),
        ({"second_stream": "two-batch overlap"}, {}, "two-batch overlap"),
        ({"nnodes": 2}, {}, "one host"),
    ],
)
def test_pcie_ipc_that_was_asked_for_and_cannot_be_met(
    comm: Any, machine: Any, changes: Any, facts_change: Any, why: str
) -> None:
    facts = replace(machine(TWO_SOCKETS), **facts_change)
    refusals = comm.decide(facts, first_user(comm, **changes), {IPC: "1"}).refusals
    assert [one.setting for one in refusals] == [IPC] and why in refusals[0].why


def measured(comm: Any, facts: Any, **changes: Any) -> Any:
    content = {
        "path": "plan.json",
        "tp_size": 8,
        "machine": facts.machine(),
        "variables": {"NCCL_PROTO": "LL"},
        "pcie_ipc_bytes": 512 * 1024,
        "why": "measured 2026-11-29",
    }
    return comm.Measured(**{**content, **changes})


def test_a_measured_plan_goes_before_the_profiles(comm: Any, machine: Any) -> None:
    facts = machine(TWO_SOCKETS)
    plan = comm.decide(facts, first_user(comm), {}, measured=measured(comm, facts))
    assert plan.applied and not plan.refusals
    assert plan.to_set() == {"NCCL_PROTO": "LL", IPC: "1", NUMEL: str(256 * 1024)}
    found = libraries(plan)
    assert found["verify, 8 requests"] == "PCIe-IPC"  # 448 KiB
    assert found["verify, 32 requests"] == "NCCL (pynccl)"


def test_a_plan_of_another_machine_or_launch_is_refused(comm: Any, machine: Any) -> None:
    facts, other = machine(TWO_SOCKETS), machine("rtx-pro-6000-x8-one-socket")
    for plan_file, why in (
        (measured(comm, other), "machine.links"),
        (measured(comm, facts, tp_size=4), "tp_size"),
    ):
        plan = comm.decide(facts, first_user(comm), {}, measured=plan_file)
        assert why in plan.refusals[0].why


def test_a_measured_plan_can_switch_the_custom_all_reduce_off(comm: Any, machine: Any) -> None:
    facts = machine("rtx-pro-6000-x2")
    plan_file = measured(comm, facts, tp_size=2, custom_all_reduce=False)
    plan = comm.decide(facts, first_user(comm, tp_size=2), {}, measured=plan_file)
    assert not plan.choice("custom_all_reduce").on
    assert libraries(plan)["verify, 1 request"] == "PCIe-IPC"


@given(
    name=st.sampled_from(MACHINES),
    ranks=st.sampled_from([1, 2, 3, 4, 6, 8]),
    apply=st.booleans(),
    fusion=st.sampled_from([None, "auto", "trtllm", "mnnvl", "cutedsl"]),
    flags=st.fixed_dictionaries(
        {
            name: st.booleans()
            for name in (
                "graphs",
                "attention_dp",
                "deterministic",
                "disable_custom_all_reduce",
                "enable_symm_mem",
                "enable_nccl_nvls",
                "enable_torch_symm_mem",
                "enable_mscclpp",
                "enable_p2p_check",
            )
        }
    ),
)
def test_every_launch_has_a_plan_and_a_shown_one_is_what_runs(
    comm: Any, machine: Any, name: str, ranks: int, apply: bool, fusion: Any, flags: Any
) -> None:
    settings = comm.Settings(tp_size=ranks, fusion_backend=fusion, num_draft_tokens=4, **flags)
    plan = comm.decide(machine(name), settings, {}, apply=apply)
    assert len(plan.rows) >= 4
    if not apply:
        assert plan.to_set() == {}
        assert "PCIe-IPC" not in {row.graph for row in plan.rows}
    for row in plan.rows:
        assert row.bytes == row.rows * settings.row_bytes
