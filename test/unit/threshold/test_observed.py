"""The scheduler tells the threshold what a batch accepted: upstream's own processing of results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.spec_hardening import proposed
from sglang.srt.spec_hardening.threshold.acceptance import Acceptance
from sglang.srt.spec_hardening.threshold.auto import AutoDecider
from sglang.srt.spec_hardening.threshold.worker import BatchThreshold

STEPS = 3


@pytest.fixture(autouse=True)
def _one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(speculative_adaptive=False, speculative_num_draft_tokens=STEPS + 1)
    monkeypatch.setattr(proposed, "get_spec", lambda: said)


def threshold() -> BatchThreshold:
    nothing = MagicMock()
    return BatchThreshold(nothing, AutoDecider(Acceptance(STEPS)), nothing, nothing, nothing)


def process(worker: Any, accept_lens: list[int], plain: bool = False) -> None:
    """What the scheduler does with a batch's result, whose requests have all left meanwhile."""
    processor: Any = SimpleNamespace(
        model_worker=worker, metrics_reporter=MagicMock(), advance_grammar_fsm=MagicMock()
    )
    width = 1 if plain else STEPS + 1
    result = GenerationBatchResult(
        next_token_ids=torch.zeros(len(accept_lens) * width, dtype=torch.int64),
        accept_lens=torch.tensor(accept_lens),
        speculative_num_draft_tokens=width,
        is_plain_step=plain,
    )
    batch: Any = SimpleNamespace(reqs=[])
    SchedulerBatchResultProcessor._resolve_spec_v2_tokens(processor, result, batch)


def test_the_threshold_learns_from_every_batch_that_speculated() -> None:
    known = threshold()
    worker = SimpleNamespace(threshold=known, on_verify_complete_cpu=MagicMock())
    acceptance = known.decider.acceptance  # type: ignore[attr-defined]
    assumed = acceptance.accept_length
    for _ in range(50):
        process(worker, [STEPS + 1] * 4)
    assert acceptance.accept_length > 3.8, "it still decides by what it assumed at the start"
    for _ in range(500):
        process(worker, [1] * 4)
    assert acceptance.accept_length < 1.2 < assumed


def test_plain_steps_say_nothing_of_the_draft() -> None:
    known = threshold()
    worker = SimpleNamespace(threshold=known, on_verify_complete_cpu=MagicMock())
    process(worker, [1] * 4, plain=True)
    acceptance = known.decider.acceptance  # type: ignore[attr-defined]
    assert acceptance.seen == 0
    process(worker, [1] * 4)
    assert acceptance.seen == pytest.approx(4, rel=0.1)


def test_a_worker_without_a_threshold_is_left_alone() -> None:
    worker = MagicMock(spec=["on_verify_complete_cpu"])
    process(worker, [2, 3])
    worker.on_verify_complete_cpu.assert_called_once_with([1, 2], batch_size=0)
