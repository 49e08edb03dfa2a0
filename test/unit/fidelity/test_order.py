"""Penalties that do not commute are applied in one order, whatever the order of a set is."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import torch
from kit.verify_steps import PENALIZERS, VOCABULARY, Batch, Request
from sglang.srt.sampling import penaltylib


def test_the_order_of_penalties_is_the_same_in_every_process() -> None:
    """A set of classes is ordered by their addresses: here every order that it could have."""
    asked = {"frequency_penalty": 0.5, "presence_penalty": 0.25, "repetition_penalty": 2.0}
    found = []
    for order in permutations(sorted(PENALIZERS, key=lambda one: one.__name__)):
        batch: Any = Batch([Request([], max_new_tokens=9, **asked)])
        judge = penaltylib.BatchedPenalizerOrchestrator(VOCABULARY, batch, order)  # type: ignore[arg-type]
        judge.cumulate_output_tokens(torch.tensor([5]))
        logits = torch.ones(1, VOCABULARY)
        judge.apply(logits)
        found.append(float(logits[0, 5]))
    assert found == [(1 - 0.5 - 0.25) / 2] * 24
