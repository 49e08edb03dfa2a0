"""What a request has put out when it is prefilled again, after a retraction.

Upstream's penalizers start from nothing with every prefill, so a request that was retracted forgets
its penalties and has stop tokens banned once more. The prefill samples one token, with their state.
What custom logit processors have seen of tokens that it lost is taken back.

Called by: `srt/managers/schedule_batch.py` (patch `penalties-after-retraction`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sglang.srt.spec_hardening.fidelity import memories
from sglang.srt.spec_hardening.fidelity.lines import on_device

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch


def remember(batch: ScheduleBatch) -> None:
    """Tell the penalizers and processors of a batch to be prefilled what its requests have put out
    already."""
    if batch.sampling_info.has_custom_logit_processor and not batch.spec_algorithm.is_none():
        for req in batch.reqs:
            memories.take_back(req)
    orchestrator = batch.sampling_info.penalizer_orchestrator
    again = [(row, req) for row, req in enumerate(batch.reqs) if req.output_ids]
    if not again or not orchestrator.is_required:
        return
    for row, req in again:
        seen = on_device(list(req.output_ids), torch.int64, torch.device(batch.device))
        for penalizer in orchestrator.penalizers.values():
            if penalizer.is_prepared():
                _tell(penalizer, row, seen)


def _tell(penalizer: object, row: int, seen: torch.Tensor) -> None:
    """Tell one of upstream's penalizers what the request in a row has put out, int64 [tokens]."""
    from sglang.srt.sampling import penaltylib

    if isinstance(penalizer, penaltylib.BatchedMinNewTokensPenalizer):
        penalizer.len_output_tokens[row].fill_(len(seen))
    elif isinstance(penalizer, penaltylib.BatchedFrequencyPenalizer):
        rate = penalizer.frequency_penalties[row].expand(len(seen))
        penalizer.cumulated_frequency_penalties[row].scatter_add_(0, seen, rate)
    elif isinstance(penalizer, penaltylib.BatchedPresencePenalizer):
        rate = penalizer.presence_penalties[row].expand(len(seen))
        penalizer.cumulated_presence_penalties[row].scatter_(0, seen, rate)
    elif isinstance(penalizer, penaltylib.BatchedRepetitionPenalizer):
        rate = penalizer.repetition_penalties[row].expand(len(seen))
        penalizer.cumulated_repetition_penalties[row].scatter_(0, seen, rate)
