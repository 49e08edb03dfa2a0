"""What every rank must have decided alike in a verify step, told to upstream's consensus checker.

The greedy verify is not synchronised between ranks: each takes the argmax of logits that should be
the same everywhere. Where they are not (a wrong shard, a faulty kernel), ranks accept different
numbers of drafts, their batches drift apart, and the next collective that differs in shape hangs.
With `SGLANG_ENABLE_RANK_CONSENSUS_CHECKER=1` all ranks end at the first such step and say which.

Called by: `srt/speculative/eagle_worker_common.py` (patch `rank-consensus-in-verify`), `threshold`.
"""

from __future__ import annotations

import torch
from sglang.srt.utils import rank_consensus_checker


def record_verify(
    draft_tokens: torch.Tensor, predict: torch.Tensor, accept_lens: torch.Tensor
) -> None:
    """Have the checker compare one verify step; free of cost where it is off.

    Args:
        draft_tokens: (rows * num_draft_tokens,), the tree that was verified.
        predict: (rows * num_draft_tokens,), the target's token at every accepted node, else 0.
        accept_lens: (rows,), accepted tokens, the bonus token included.
    """
    if not rank_consensus_checker.enabled():
        return
    rank_consensus_checker.assert_same(
        "EAGLE verify: accept lengths %s, draft tokens %s, predicted tokens %s",
        accept_lens.tolist(),
        draft_tokens.tolist(),
        predict.tolist(),
    )


def record_threshold(on: bool, behind: list[int], tables: int) -> None:
    """Have the checker compare whether a decode batch speculates, and what the draft is owed.

    Args:
        on: the decision of the batch threshold.
        behind: tokens of each row that the draft has not seen.
        tables: how often what it decides by was refreshed (`threshold.exchange`).
    """
    if rank_consensus_checker.enabled():
        rank_consensus_checker.assert_same(
            "Batch threshold: on %s, behind %s, refreshes %s", on, behind, tables
        )
