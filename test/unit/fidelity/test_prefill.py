"""A request that is prefilled again goes on with its penalties."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kit.processors import Remembers
from kit.verify_steps import PENALIZERS, VOCABULARY, Batch, Request, chains, judged
from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.sampling_batch_info import ProcessorEntry
from sglang.srt.spec_hardening.fidelity import prefill, window
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

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


def with_processor(req: Any, own: dict[str, Any]) -> Any:
    req.custom_logit_processor = "its text"
    req.sampling_params.custom_params = own
    entry = ProcessorEntry(Remembers(), [0], torch.tensor([0]))
    batch: Any = Batch(
        [req],
        has_custom_logit_processor=True,
        custom_logit_processor={1: entry},
        custom_params=[own],
        penalizer_orchestrator=SimpleNamespace(is_required=False),
    )
    batch.spec_algorithm = SpeculativeAlgorithm.EAGLE3
    return batch


def verified(batch: Any, seed: int) -> int:
    """Judge a chain of three drafts of which two are accepted; how many tokens come of it."""
    logits = torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(seed))
    verify = chains([[batch.reqs[0].output_ids[-1], 3, 4, 5]])
    opened = window.open_window(verify, batch, logits)  # type: ignore[arg-type]
    assert opened is not None
    opened.process(logits)
    opened.close(torch.tensor([[0, 1, 2, -1]]), torch.tensor([3]))
    return 3


def prefilled(batch: Any) -> None:
    prefill.remember(batch)
    Remembers()(torch.randn(1, VOCABULARY), [batch.sampling_info.custom_params[0]])


def seen(batch: Any) -> list[int]:
    found: list[int] = batch.sampling_info.custom_params[0]["seen"]
    return found


def test_a_processor_forgets_tokens_that_a_retraction_threw_away() -> None:
    req: Any = Request([])
    batch = with_processor(req, {"token": 9})
    prefilled(batch)
    req.output_ids.append(7)
    before = list(seen(batch))
    verified(batch, 1)
    assert len(seen(batch)) == len(before) + 3, "and the request does not get those three"
    prefilled(batch)
    assert seen(batch)[:-1] == before and len(seen(batch)) == len(req.output_ids) + 1
    prefilled(batch)  # retracted again before the prefill's own token came
    assert seen(batch)[:-1] == before and len(seen(batch)) == len(req.output_ids) + 1


def test_a_processor_keeps_what_it_saw_of_tokens_that_came() -> None:
    req: Any = Request([])
    batch = with_processor(req, {"token": 9})
    prefilled(batch)
    req.output_ids.append(7)
    verified(batch, 1)
    req.output_ids.extend([3, 4, 8])
    before = list(seen(batch))
    prefilled(batch)
    assert seen(batch)[:-1] == before
    assert batch.sampling_info.custom_params[0]["token"] == 9
