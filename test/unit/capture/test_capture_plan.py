"""A plan held against forwards as upstream's runners make them: plain, padded, several requests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.spec_hardening.capture_plan import CaptureError, CapturePlan
from sglang.srt.spec_hardening.contract.slots import slots_of
from sglang.srt.spec_hardening.fingerprint import Fingerprint, Prompt, traces_of

HIDDEN, LAYERS, TOKENS = 16, 6, 12
LOOPS = (2, 3, 5)
IDS = torch.arange(100, 100 + TOKENS)


def states(loops: tuple[int, ...], rows: int = TOKENS) -> torch.Tensor:
    """Packed states of these layers; rows beyond the prompt are what a graph leaves there."""
    made = [torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(n)) for n in loops]
    packed = torch.cat(made, dim=-1)
    return torch.cat([packed, torch.full((rows - TOKENS, packed.shape[1]), 7.0)])


def plan() -> CapturePlan:
    def traces(loops: tuple[int, ...]) -> tuple[Any, ...]:
        found = traces_of(states(loops), len(loops), TOKENS)
        return tuple(
            type(trace)(f"output of layer {loop - 1}", trace.norms, trace.first)
            for trace, loop in zip(found, loops, strict=True)
        )

    prompt = Prompt(tuple(IDS.tolist()), traces(LOOPS), traces(tuple(range(LAYERS))))
    marks = Fingerprint(Path("draft/capture_fingerprint.json"), (prompt,))
    return CapturePlan(slots_of(LOOPS), None, "words", HIDDEN, marks)


def forward(
    plan: CapturePlan,
    captured: Any,
    ids: torch.Tensor | None = IDS,
    lengths: list[int] | None = None,
    mode: ForwardMode = ForwardMode.EXTEND,
) -> str:
    rows = captured.shape[0] if isinstance(captured, torch.Tensor) else TOKENS
    metadata = SimpleNamespace(forward_mode=mode, extend_seq_lens_cpu=lengths or [TOKENS])
    plan.check_forward(captured, torch.zeros(rows, HIDDEN), ids, metadata)
    return str(plan.to_json()["fingerprint"])


def test_a_prefill_is_compared() -> None:
    assert forward(plan(), states(LOOPS)) == "1 of 1 prompts compared"
    listed = list(states(LOOPS).chunk(3, dim=-1))
    assert forward(plan(), listed) == "1 of 1 prompts compared"


def test_rows_that_a_graph_adds_are_no_part_of_the_prompt() -> None:
    padded = torch.cat([IDS, torch.zeros(4, dtype=IDS.dtype)])
    assert forward(plan(), states(LOOPS, TOKENS + 4), padded) == "1 of 1 prompts compared"
    with pytest.raises(CaptureError, match="slot 1 is the output of layer 3, the draft was"):
        forward(plan(), states((2, 4, 5), TOKENS + 4), padded)


def test_other_forwards_are_not_compared() -> None:
    """Their states are of other tokens; number and width of the states are checked all the same."""
    for ids, lengths, mode in (
        (None, None, ForwardMode.EXTEND),
        (IDS, [5, 7], ForwardMode.EXTEND),
        (IDS, None, ForwardMode.TARGET_VERIFY),
        (IDS, None, ForwardMode.DRAFT_EXTEND_V2),
        (IDS + 1, None, ForwardMode.EXTEND),
    ):
        assert forward(plan(), states(LOOPS), ids, lengths, mode) == "0 of 1 prompts compared"
        with pytest.raises(CaptureError, match="captured 2 states of widths"):
            forward(plan(), states((2, 3)), ids, lengths, mode)


def test_an_idle_rank_hands_over_nothing() -> None:
    assert forward(plan(), None, mode=ForwardMode.IDLE) == "0 of 1 prompts compared"
