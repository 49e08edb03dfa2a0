"""The fusion workspace: never taken from under captured graphs, never used by some ranks only.

The library is stood in for (it needs GPUs); manager, dispatch and vote are the real ones.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from sglang.srt.layers import flashinfer_comm_fusion as fusion
from sglang.srt.spec_hardening.comm import vote, workspace


class Workspace:
    """What the library makes: it says what fits, and whether it was destroyed."""

    backend = "mnnvl"
    made: ClassVar[list[Workspace]] = []

    def __init__(self, hidden_dim: int) -> None:
        self.hidden_dim, self.destroyed = hidden_dim, False
        Workspace.made.append(self)

    def is_buffer_size_sufficient(
        self, tp_size: int, num_tokens: int, hidden_dim: int, dtype: Any
    ) -> bool:
        return hidden_dim <= self.hidden_dim

    def destroy(self) -> None:
        self.destroyed = True


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> fusion.FlashInferWorkspaceManager:
    """A manager as the target leaves it before its graphs are captured, 64 elements a row."""
    group = SimpleNamespace(device_group=None, cpu_group=None)
    manager = fusion.FlashInferWorkspaceManager()
    for name, value in {
        "_flashinfer_comm": object(),
        "_create_allreduce_fusion_workspace": lambda **given: Workspace(given["hidden_dim"]),
        "_flashinfer_allreduce_unavailable": False,
        "is_flashinfer_available": lambda: True,
        "uses_cutedsl_ar_fusion": lambda: False,
        "resolve_fusion_group": lambda use_attn_tp_group: (2, 0, group),
        "resolve_flashinfer_allreduce_fusion_backend": lambda: "mnnvl",
        "_get_workspace_manager": lambda use_attn_tp_group: manager,
        "_preflight_check_workspace_memory": lambda **given: True,
        "get_parallel": lambda: SimpleNamespace(tp_group=group),
    }.items():
        monkeypatch.setattr(fusion, name, value)
    monkeypatch.setattr(workspace, "_captured", False)
    monkeypatch.setattr(workspace, "_said", set())
    monkeypatch.setattr(vote, "_reason", "")
    Workspace.made.clear()
    assert fusion.ensure_workspace_initialized(hidden_dim=64)
    return manager


def test_it_grows_while_no_graph_holds_it(library: fusion.FlashInferWorkspaceManager) -> None:
    assert fusion.ensure_workspace_initialized(hidden_dim=128)
    assert [one.hidden_dim for one in Workspace.made] == [64, 128]
    assert Workspace.made[0].destroyed


def test_a_workspace_that_graphs_hold_is_never_replaced(
    library: fusion.FlashInferWorkspaceManager, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.graphs_begin()
    for _ in range(3):
        assert not fusion.ensure_workspace_initialized(hidden_dim=128)
    assert fusion.ensure_workspace_initialized(hidden_dim=64)
    assert library.workspace is Workspace.made[0] and not Workspace.made[0].destroyed
    assert len(Workspace.made) == 1
    assert caplog.text.count("Rows of 128 elements do not fit") == 1


def test_a_first_workspace_may_be_made_after_a_capture(
    library: fusion.FlashInferWorkspaceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of its own, whose workspace no graph can hold yet."""
    workspace.graphs_begin()
    other = fusion.FlashInferWorkspaceManager()
    monkeypatch.setattr(fusion, "_get_workspace_manager", lambda use_attn_tp_group: other)
    assert fusion.ensure_workspace_initialized(hidden_dim=128)
    assert other.hidden_dim == 128


def test_a_rank_that_fails_says_why(
    library: fusion.FlashInferWorkspaceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str, bool]] = []

    def vote_down(group: Any, name: str, usable: bool) -> bool:
        said.append((name, vote._reason, usable))
        return False

    def out_of_memory(**given: Any) -> Any:
        raise MemoryError("planted")

    monkeypatch.setattr(fusion, "_create_allreduce_fusion_workspace", out_of_memory)
    monkeypatch.setattr(vote, "agreed", vote_down)
    assert not fusion.ensure_workspace_initialized(hidden_dim=128)
    assert said == [("FlashInfer all-reduce fusion", "MemoryError: planted", False)]
    assert fusion.is_flashinfer_allreduce_unavailable()


def test_ranks_that_cannot_vote_do_not_go_on(
    library: fusion.FlashInferWorkspaceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(group: Any, name: str, usable: bool) -> bool:
        raise vote.VoteError("planted")

    monkeypatch.setattr(vote, "agreed", broken)
    with pytest.raises(vote.VoteError, match="planted"):
        fusion.ensure_workspace_initialized(hidden_dim=128)


def test_the_other_ranks_take_it_back_too(
    library: fusion.FlashInferWorkspaceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vote, "agreed", lambda group, name, usable: False)
    fusion.ensure_workspace_initialized(hidden_dim=128)
    assert fusion.is_flashinfer_allreduce_unavailable()
    assert not fusion.ensure_workspace_initialized(hidden_dim=128)
