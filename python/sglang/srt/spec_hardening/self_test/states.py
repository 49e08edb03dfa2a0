"""The states a server switches between by itself: each is decoded in, and so is the switch.

A state that the policy does not choose at start was captured and never run: a fault of it shows at
the first switch, under load. Adaptive speculation switches the number of draft steps here; the
batch threshold rehearses its crossing itself (`BatchThreshold.rehearsed`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _InTurn:
    """A policy in place of the real one: these numbers of draft steps, one a cycle, repeated."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self._turns = itertools.cycle(steps)

    def get_steps_for_batch(self, batch_size: int) -> int:
        return next(self._turns)

    def on_verify_complete(self, num_correct_drafts: list[int], batch_size: int) -> None:
        return None


def candidates(scheduler: Any) -> tuple[int, ...]:
    """Numbers of draft steps that this server may switch between, none if it does not switch."""
    controller = getattr(scheduler.draft_worker, "adaptive_controller", None)
    return () if controller is None else tuple(controller.candidate_steps)


@contextmanager
def in_turn(scheduler: Any, steps: tuple[int, ...]) -> Iterator[None]:
    """Inside, each decode cycle takes the next of `steps`; without any the policy stays."""
    if not steps:
        yield
        return
    controller = scheduler.draft_worker.adaptive_controller
    policy, controller.params = controller.params, _InTurn(steps)
    try:
        yield
    finally:
        controller.params = policy


@contextmanager
def in_chunks(scheduler: Any, tokens: int) -> Iterator[None]:
    """Inside, a prompt is prefilled in chunks of so many tokens; 0: in the server's own."""
    kept = scheduler.chunked_prefill_size
    scheduler.chunked_prefill_size = tokens or kept
    try:
        yield
    finally:
        scheduler.chunked_prefill_size = kept
