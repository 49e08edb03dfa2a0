"""What a verify step does to logits and counts, in operations of torch: on the CPU, and what the
kernels are held against."""

from __future__ import annotations

import torch
from sglang.srt.spec_hardening.fidelity.plan import Plan
from sglang.srt.spec_hardening.fidelity.tree import Tree, pick, ways_of


class TorchStep:
    """One step of the requests of a plan: `penalize`, then `close`."""

    def __init__(self, verify: Tree, plan: Plan, bans: bool) -> None:
        """`bans`: whether something may have to be banned."""
        self._verify = verify
        self._plan = plan
        self._bans = bans
        self._ways = ways_of(verify, plan.rows)

    def penalize(self, logits: torch.Tensor) -> None:
        """Change logits [requests * M, vocabulary] in place."""
        plan = self._plan
        if plan.penalties:
            counts = plan.terms.count(plan.lines, plan.ledger, self._ways, plan.most)
            plan.terms.penalize(logits, counts)
        if self._bans:
            plan.terms.ban(logits, plan.lines, plan.ledger, self._ways)

    def close(self, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> None:
        """Count what was accepted; as `Window.close`."""
        plan = self._plan
        width = accept_index.shape[1]
        plan.most = 0
        for req, line in plan.held:
            # The host may not have seen the step before, which may have been wider, nor this one.
            line.most = min(line.most + width, len(req.output_ids) + line.width + width)
            line.width = width
            plan.most = max(plan.most, line.most)
        lengths = pick(accept_lens, plan.rows)
        if self._bans:
            plan.lines.add(plan.ledger.length, lengths)
        if not plan.penalties:
            return
        is_chain = self._ways.above is None
        if is_chain:
            way = self._ways.tokens
        else:
            # Behind its end a way has -1, which is a node as good as any. There may be room for
            # more tokens than the tree has, where it has fewer than steps; no way is that long.
            longest = self._verify.draft_token_num
            nodes = pick(accept_index[:, :longest], plan.rows).long()
            way = self._verify.draft_token.take(nodes).long()
        accepted = plan.terms.accepted(lengths, way.shape[1])
        plan.ledger.add(plan.lines, way, accepted, lengths, is_chain)
