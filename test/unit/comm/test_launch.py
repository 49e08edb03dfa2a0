"""The parent's side: whose variables are whose, and what the environment of the ranks becomes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.entrypoints import engine
from sglang.srt.server_args import ServerArgs
from sglang.srt.spec_hardening.comm import launch
from sglang.srt.spec_hardening.comm.core import CommunicationError
from sglang.srt.spec_hardening.comm.settings import Settings
from sglang_spec.models import tiny_pair

from .conftest import DATA

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything that a launch sets is undone, and nothing of it was there before."""
    before = dict(os.environ)
    monkeypatch.setattr(launch, "_set_here", {})
    for name in list(os.environ):
        if name.startswith("NCCL_") or name == CONNECTIONS:
            del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


def arguments(**changes: Any) -> ServerArgs:
    """A resolved launch of the tiny pair over two ranks, as the parent has it before any rank."""
    pair = tiny_pair()
    given = {
        "model_path": str(pair.target),
        "device": "cpu",
        "tp_size": 2,
        "max_total_tokens": 1024,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(pair.draft),
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "skip_server_warmup": True,
        **changes,
    }
    args = ServerArgs(**given)
    args.resolve_once()
    return args


def replay(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(launch.REPLAY, str(DATA / f"{name}.json"))


@pytest.mark.parametrize("value", ["32", "1"])
def test_the_number_of_queues_is_the_users(value: str) -> None:
    args = arguments()
    engine._set_envs_and_config(args)
    assert os.environ.pop(CONNECTIONS) == "8"
    os.environ[CONNECTIONS] = value
    engine._set_envs_and_config(args)
    assert os.environ[CONNECTIONS] == value


def test_a_cpu_launch_is_left_alone() -> None:
    assert launch.prepare(arguments()) is None
    assert launch.server_info() == {}


def test_without_the_flag_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    replay(monkeypatch, "rtx-pro-6000-x4")
    args = arguments(tp_size=4)
    before = dict(os.environ)
    plan = launch.prepare(args)
    assert plan is not None and not plan.applied
    assert dict(os.environ) == before
    assert launch.server_info()["table"][0].startswith("Communication: NVIDIA RTX PRO 6000")


def test_auto_sets_what_nobody_set(monkeypatch: pytest.MonkeyPatch) -> None:
    replay(monkeypatch, "rtx-pro-6000-x4")
    os.environ["NCCL_P2P_LEVEL"] = "PHB"
    plan = launch.prepare(arguments(tp_size=4, speculative_comm_plan="auto"))
    assert plan is not None and plan.applied
    assert os.environ["NCCL_P2P_LEVEL"] == "PHB"
    assert os.environ["SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"] == "1"
    assert os.environ["NCCL_MIN_NCHANNELS"] == "8"


def test_a_second_launch_does_not_take_the_first_ones_values_for_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay(monkeypatch, "rtx-pro-6000-x4")
    first = arguments(tp_size=4, speculative_comm_plan="auto")
    launch.prepare(first)
    engine._set_envs_and_config(first)
    plan = launch.prepare(arguments(tp_size=4))
    assert plan is not None
    assert {one.by for one in plan.variables} <= {"sglang", "plan"}
    assert "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE" not in os.environ


def test_broken_peers_switch_the_custom_all_reduce_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.arg_groups.overrides import resolved_view

    replay(monkeypatch, "rtx-pro-6000-x2-broken-peers")
    args = arguments(speculative_comm_plan="auto")
    assert not resolved_view(args).disable_custom_all_reduce
    launch.prepare(args)
    assert resolved_view(args).disable_custom_all_reduce
    assert os.environ["NCCL_P2P_DISABLE"] == "1"


def test_a_refused_launch_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    replay(monkeypatch, "rtx-pro-6000-x4")
    args = arguments(
        tp_size=4,
        speculative_comm_plan="auto",
        flashinfer_allreduce_fusion_backend="auto",
    )
    before = dict(os.environ)
    with pytest.raises(CommunicationError, match="SM120"):
        launch.prepare(args)
    assert dict(os.environ) == before


def test_a_plan_file_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replay(monkeypatch, "rtx-pro-6000-x4")
    missing = str(tmp_path / "plan.json")
    with pytest.raises(ValueError, match=r"--speculative-comm-plan .*plan\.json"):
        launch.prepare(arguments(tp_size=4, speculative_comm_plan=missing))


def test_settings_of_a_resolved_launch() -> None:
    from sglang.srt.arg_groups.overrides import resolved_view

    args = arguments(speculative_num_steps=2, speculative_num_draft_tokens=3)
    found = launch.settings_of(args, resolved_view(args), "cuda")
    assert isinstance(found, Settings) and found.resolved
    assert (found.num_draft_tokens, found.tp_size) == (3, 2)
    assert found.hidden_size > 0 and found.dtype == "bfloat16"
    assert found.architecture == "LlamaForCausalLM"


def test_an_engine_asks_before_the_environment_of_the_ranks_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call site, in the launch that servers and the Engine share."""

    class Refused(Exception):
        pass

    def refuse(args: ServerArgs) -> None:
        raise Refused

    def go_on(args: ServerArgs) -> None:
        pytest.fail("the launch went on")

    monkeypatch.setattr(launch, "prepare", refuse)
    monkeypatch.setattr(engine, "_set_envs_and_config", go_on)
    unused: Any = None
    with pytest.raises(Refused):
        engine.Engine._launch_subprocesses(arguments(), unused, unused, unused)
