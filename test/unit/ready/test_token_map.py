"""A worker whose map of draft tokens is missing or short is not whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.spec_hardening import attributes, invariants
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

MAP = torch.arange(8)


def worker(own: torch.Tensor | None, models: torch.Tensor | None) -> Any:
    """One whose draft worker has all but what is in question."""
    draft = object.__new__(EagleDraftWorker)
    for name in attributes.DRAFT_WORKER:
        setattr(draft, name, 1)
    model = SimpleNamespace(hot_token_id=models)
    draft.draft_runner, draft.hot_token_id = SimpleNamespace(model=model), own
    return SimpleNamespace(_draft_worker=draft)


@pytest.mark.parametrize(("own", "models"), [(MAP, MAP), (None, None), (MAP, None)])
def test_a_whole_worker_passes(own: torch.Tensor | None, models: torch.Tensor | None) -> None:
    invariants.check(worker(own, models))


@pytest.mark.parametrize(
    ("own", "says"), [(None, "is None, the draft has a map of 8"), (MAP[:7], r"shape \(7,\)")]
)
def test_a_missing_or_short_map_is_named(own: torch.Tensor | None, says: str) -> None:
    with pytest.raises(invariants.IncompleteWorkerError, match=f"hot_token_id .*{says}"):
        invariants.check(worker(own, MAP))
