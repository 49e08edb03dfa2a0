"""Plain decoding with overlap scheduling: who counts the last token, in upstream's own steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from kit.verify_steps import VOCABULARY, Request
from sglang.srt import runtime_context
from sglang.srt.managers import schedule_batch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.spec_hardening.fidelity import window


class Prepared(Exception):
    """Ends the preparation of a step: what follows is not the subject."""


def prepared(monkeypatch: pytest.MonkeyPatch, overlap: bool, **more: Any) -> Any:
    """A plain decode batch with a penalty, as `prepare_for_decode` leaves it."""
    mixed = SimpleNamespace(enable_mixed_chunk=more.pop("mixed", False))
    monkeypatch.setattr(runtime_context, "get_schedule", lambda: mixed)
    monkeypatch.setattr(schedule_batch, "alloc_for_decode", MagicMock(side_effect=Prepared))
    reqs = [MagicMock(beam_group=None)]
    batch = MagicMock(enable_overlap=overlap, reqs=reqs, beam_tail=None)
    batch.spec_algorithm.is_none.return_value = True
    batch.model_config.is_encoder_decoder = False
    batch.sampling_info.penalizer_orchestrator.is_required = True
    batch.sampling_info.penalties_on_device = False
    with pytest.raises(Prepared):
        schedule_batch.ScheduleBatch.prepare_for_decode(batch)
    return batch


def test_with_overlap_the_penalizers_are_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = prepared(monkeypatch, overlap=True)
    assert batch.cumulate_penalty_output_tokens.call_count == 0, "they lag by one token"
    assert batch.sampling_info.penalties_on_device is True


@pytest.mark.parametrize(("overlap", "mixed"), [(False, False), (True, True)])
def test_elsewhere_they_count_as_before(
    monkeypatch: pytest.MonkeyPatch, overlap: bool, mixed: bool
) -> None:
    batch = prepared(monkeypatch, overlap, mixed=mixed)
    assert batch.cumulate_penalty_output_tokens.call_count == 1
    assert batch.sampling_info.penalties_on_device is False


def test_the_step_itself_counts_its_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the scheduler's forward to the logits, with what the device alone knows."""
    monkeypatch.setattr(window, "_BOOKS", {})
    info = SamplingBatchInfo(
        temperatures=torch.ones(1, 1),
        top_ps=torch.ones(1),
        top_ks=torch.ones(1, dtype=torch.int32),
        min_ps=torch.zeros(1),
        is_all_greedy=True,
        is_any_greedy=True,
        need_top_p_sampling=False,
        need_top_k_sampling=False,
        need_min_p_sampling=False,
        vocab_size=VOCABULARY,
        device="cpu",
    )
    info.penalizer_orchestrator = MagicMock(is_required=False)
    info.penalties_on_device = True
    req = Request([], frequency_penalty=1.0, max_new_tokens=9)
    req.kv.kv_committed_len += 1  # the place of the token that the step writes
    batch = MagicMock(reqs=[req], sampling_info=info, input_ids=torch.tensor([5]), device="cpu")
    batch.spec_algorithm.is_none.return_value = True
    batch.forward_mode.is_decode.return_value = True
    scheduler: Any = SimpleNamespace()
    logits = torch.zeros(1, VOCABULARY)
    with Scheduler._forward_isolation(scheduler, batch, overlap=False):
        batch.sampling_info._apply_pre_grammar_logits_transforms(logits)
    assert logits[0, 5] == -1
    assert logits.abs().sum() == 1
