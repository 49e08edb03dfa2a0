"""Where an accepted run ends a request, if several of its tokens would.

Upstream looks at a run kind by kind (the stop strings in their order, then expressions, then stop
tokens), and the first kind found wins. Token by token the first token wins.

Called by: `srt/managers/schedule_batch.py` (patch `first-end-of-a-run`) and
`srt/managers/scheduler_components/batch_result_processor.py` (patch `reasoning-within-the-answer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req


def take_first(req: Req, accepted: int) -> None:
    """Let a request that a string or an expression has ended end at the first end in its run.

    Done once in a request's life, since it is over then.
    """
    if accepted <= 1:
        return
    whole, found = req.output_ids, (req.finished_reason, req.finished_len)
    last = len(whole) if req.finished_len is None else req.finished_len
    try:
        for length in range(len(whole) - accepted + 1, last + 1):
            req.output_ids = whole[:length]
            req.finished_reason = req.finished_len = None
            if req._check_str_based_finish(1) or req._check_token_based_finish(
                whole[length - 1 : length]
            ):
                if req.finished_len is None:
                    req.finished_len = length
                return
        req.finished_reason, req.finished_len = found
    finally:
        req.output_ids = whole


def within(req: Req, run: Sequence[int]) -> list[int]:
    """Those tokens of the run put out last that belong to the answer."""
    past = len(req.output_ids) - len(req.output_ids_through_stop)
    return list(run[: max(0, len(run) - past)])
