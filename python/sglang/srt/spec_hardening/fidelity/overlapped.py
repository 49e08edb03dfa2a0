"""Plain decoding with overlap scheduling: penalties of the token that the host does not know yet.

Under overlap a step is prepared before the result of the one before is known, and upstream's
penalizers are fed then: they lag by one token, count the last token of the prompt, and lose or
repeat one when a prefill comes between. Here such steps count on the device as verify steps do, so
that speculation is compared with the answer that was asked for.

Called by: `srt/managers/schedule_batch.py`, `srt/managers/scheduler.py` (patch
`penalties-with-overlap`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from sglang.srt.spec_hardening.fidelity import window

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch


class Step:
    """What a decode step still has to do to its logits, once."""

    def __init__(self, batch: ScheduleBatch) -> None:
        self._batch = batch
        self._tokens = batch.input_ids
        self._done = False

    def __call__(self, logits: torch.Tensor) -> None:
        """Change logits [requests, vocabulary] in place, before grammar and bias."""
        if not self._done:
            self._done = True
            window.plain_step(self._batch, self._tokens, logits, claimed=1)


def takes(batch: ScheduleBatch) -> bool:
    """Take the penalties of a batch's decode steps over from upstream's penalizers, or not.

    Not where upstream counts rightly (without overlap), not for speculation, which counts in
    verify, and not where a row of a step is not a request's next token.
    """
    from sglang.srt.runtime_context import get_schedule

    if (
        not batch.enable_overlap
        or not batch.spec_algorithm.is_none()
        or get_schedule().enable_mixed_chunk
        or any(req.beam_group is not None for req in batch.reqs)
    ):
        return False
    window.relieve(batch)
    batch.sampling_info.penalties_on_device = True
    return True


def attach(batch: ScheduleBatch) -> None:
    """Give a decode step that is about to run what it has to do; on the stream it runs on."""
    info = batch.sampling_info
    if info is not None and info.penalties_on_device and batch.forward_mode.is_decode():
        info.last_token_step = Step(batch)
