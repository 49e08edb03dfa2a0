"""A request that is prefilled again goes on with its penalties."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.verify_steps import PENALIZERS, VOCABULARY, Batch, Request, judged
from sglang.srt.sampling import penaltylib
from sglang.srt.spec_hardening.fidelity import prefill

OUTPUT = [5, 6, 5, 5, 9]
SETTINGS: list[dict[str, Any]] = [
    {"frequency_penalty": 0.7},
    {"presence_penalty": 1.5},
    {"repetition_penalty": 1.3},
    {"min_new_tokens": 5, "stop_token_ids": [11]},
    {"min_new_tokens": 6},
    {"frequency_penalty": -0.5, "presence_penalty": 0.5, "repetition_penalty": 0.8},
]


@pytest.mark.parametrize("asked", SETTINGS, ids=str)
def test_penalties_are_those_before_the_retraction(asked: dict[str, Any]) -> None:
    reqs = [
        Request(OUTPUT, max_new_tokens=99, **asked),
        Request([], max_new_tokens=99, **asked),
        Request(OUTPUT[:2], max_new_tokens=99),
    ]
    batch: Any = Batch(reqs)
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(VOCABULARY, batch, PENALIZERS)
    batch.sampling_info.penalizer_orchestrator = orchestrator
    prefill.remember(batch)
    logits = torch.randn(len(reqs), VOCABULARY)
    found = logits.clone()
    added = torch.zeros_like(found)
    orchestrator.accumulate_additive_penalties(added)
    found += added
    scale = orchestrator.accumulate_scaling_penalties()
    if scale is not None:
        found = torch.where(found < 0, found * scale, found / scale)
    for row, req in enumerate(reqs):
        torch.testing.assert_close(found[row], judged(req, list(req.output_ids), logits[row]))
