"""What a verify step does to logits and counts, in one launch each: on CUDA.

The lists of the ledger are not kept up here; the kernels need none.
"""

from __future__ import annotations

import torch
from sglang.srt.spec_hardening.fidelity import kernel
from sglang.srt.spec_hardening.fidelity.plan import Plan
from sglang.srt.spec_hardening.fidelity.tree import Tree


class FusedStep:
    """One step of the requests of a plan, to the bit what `by_torch.TorchStep` gives."""

    def __init__(self, verify: Tree, plan: Plan, bans: bool) -> None:
        self._verify = verify
        self._plan = plan
        self._bans = bans

    def penalize(self, logits: torch.Tensor) -> None:
        plan, verify, ledger = self._plan, self._verify, self._plan.ledger
        if not (plan.penalties or self._bans):
            return
        nodes, is_chain, width = (
            verify.draft_token_num,
            verify.tree_topk == 1,
            ledger.stops.shape[1],
        )
        blocks = -(-ledger.vocabulary // kernel.BLOCK)
        kernel.judge[len(plan.held), blocks, 1 if is_chain else nodes](
            logits,
            logits.stride(0),
            verify.draft_token,
            verify.retrieve_next_token.contiguous(),
            verify.retrieve_next_sibling.contiguous(),
            plan.places,
            plan.lines.index,
            ledger.counts,
            ledger.rates,
            ledger.length,
            ledger.minimum,
            ledger.stops,
            width,
            width if self._bans else 0,
            nodes,
            ledger.vocabulary,
            IS_CHAIN=is_chain,
            WIDEST=kernel.LINKS if is_chain else _links(nodes),
            COLUMNS=kernel.BLOCK,
            **kernel.FLAGS,
        )

    def close(self, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> None:
        plan, verify, ledger = self._plan, self._verify, self._plan.ledger
        if not (plan.penalties or self._bans):
            return
        kernel.count[(len(plan.held),)](
            verify.draft_token,
            accept_index,
            accept_index.stride(0),
            accept_lens,
            plan.places,
            plan.lines.index,
            ledger.counts,
            ledger.length,
            verify.draft_token_num,
            ledger.vocabulary,
            IS_CHAIN=verify.tree_topk == 1,
            **kernel.FLAGS,
        )


def _links(nodes: int) -> int:
    """A power of two that is at least so much, and one for all common trees."""
    return max(kernel.LINKS, 1 << (nodes - 1).bit_length())
