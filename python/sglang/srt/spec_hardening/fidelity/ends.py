"""Where an accepted run ends a request, if several of its tokens would.

Upstream looks at a run kind by kind (the stop strings in their order, then expressions, then stop
tokens), and the first kind found wins. Token by token the first token wins.

A grammar ends a request with its own end, and with a token that it forbids, which only a logit
processor or a minimum length brings about. Upstream's plain decoding sees both a token too late;
with speculation a forbidden token behind the answer's end, in the same run, took the answer away.
For both a token is first looked at as any other, and the grammar is asked only if it ends nothing.

Called by: `srt/managers/schedule_batch.py` (patches `first-end-of-a-run`,
`grammar-after-each-token`) and `srt/managers/scheduler_components/batch_result_processor.py`
(patches `reasoning-within-the-answer`, `grammar-after-each-token`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sglang.srt.managers.schedule_batch import FINISH_ABORT

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.managers.scheduler_components.batch_result_processor import (
        SchedulerBatchResultProcessor,
    )


class Forbidden(FINISH_ABORT):  # type: ignore[misc]  # not typed upstream
    """Why a request ends whose last token its grammar does not take."""


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


def advance(
    processor: SchedulerBatchResultProcessor, req: Req, tokens: int | list[int], done: bool
) -> None:
    """Advance the grammar of a request that no token has ended, and end it where the grammar does.

    Args:
        tokens: what it has put out last.
        done: the grammar was advanced by these already.
    """
    if done or req.grammar is None or req.finished():
        return
    processor._accept_grammar_tokens(req, tokens)
    if isinstance(req.to_finish, Forbidden) or req.grammar.is_terminated():
        req.update_finish_state()
