"""All ranks or none, between real processes over gloo; test/gpu runs the same program on GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from kit import voters


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """Two ranks that build three groups: whole, with a fault in one rank, and useless on both."""
    return voters.run(voters.build_groups, 2, "none end off")


def test_ranks_that_all_built_it_use_it(ranks: list[dict[str, Any]]) -> None:
    found = [one["none"] for one in ranks]
    assert [one["custom"] for one in found] == [True, True]
    assert [one["total"] for one in found] == [3.0, 3.0]
    assert [one["log"] for one in found] == [[], []]


def test_a_rank_that_cannot_build_it_takes_all_back(ranks: list[dict[str, Any]]) -> None:
    found = [one["end"] for one in ranks]
    assert [one["custom"] for one in found] == [False, False]
    assert [one["total"] for one in found] == [3.0, 3.0]
    assert {one["outcome"] for one in found} == {"rank 1: RuntimeError: planted at the end"}
    assert "custom all-reduce is off on all 2 ranks" in found[0]["log"][0]
    assert "rank 1: RuntimeError: planted at the end" in found[0]["log"][0]
    assert found[1]["log"] == []


def test_where_nobody_can_use_it_nobody_is_warned(ranks: list[dict[str, Any]]) -> None:
    assert [(one["off"]["custom"], one["off"]["log"]) for one in ranks] == [(False, [])] * 2


def test_a_rank_whose_peers_hang_ends_with_their_name() -> None:
    """Rank 1 fails before the collective that rank 0 waits in: nobody can take rank 0 back."""
    found = voters.run(voters.build_groups, 2, "start")
    assert "start" not in found[0] and "start" not in found[1]
    assert "rank 0 did not come out of its construction in 6 s" in found[1]["raised"]
    assert "planted before the first collective" in found[1]["raised"]


@pytest.mark.parametrize(
    ("visible", "index", "reason"),
    [
        (None, 1, ""),
        ("0,1", 1, ""),
        ("0", 1, "has no number for device 1"),
        ("GPU-8f6d,GPU-17b2", 0, "has no number for device 0"),
    ],
)
def test_what_the_constructor_would_stumble_over(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, index: int, reason: str
) -> None:
    """Looked at before any rank is in a collective; a group of one is not asked."""
    import torch
    from sglang.srt.spec_hardening.comm import vote

    said: list[str] = []
    monkeypatch.setattr(vote, "failed", said.append)
    monkeypatch.setattr(vote, "agreed", lambda group, name: not said)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert vote.may_begin(None, torch.device("cuda", index), "x") is (reason == "")
    assert reason in "".join(said)
    assert vote.may_begin(None, torch.device("cpu"), "x")
