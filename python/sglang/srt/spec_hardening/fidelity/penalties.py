"""Penalties and the ban of stop tokens at every node of the windows of a verify step.

A logit changes only where its token was put out, so only those are touched: the tokens in the
request's line, then those on the way to the node, whose counts the line does not have yet.
"""

from __future__ import annotations

import torch
from sglang.srt.spec_hardening.fidelity.ledger import Ledger
from sglang.srt.spec_hardening.fidelity.tree import Paths


def penalize(
    logits: torch.Tensor,
    rows: torch.Tensor,
    lines: torch.Tensor,
    ledger: Ledger,
    paths: Paths,
    listed: int,
) -> None:
    """Change the logits of R requests in place; nothing is read back to the host.

    Args:
        logits: [requests * M, vocabulary]; rows may be longer than the vocabulary in memory.
        rows: int64 [R], place of each request in the batch.
        lines: int64 [R], its line in the ledger.
        paths: the trees of these requests.
        listed: at least as many different tokens as any of the lines holds, at most its width.
    """
    nodes = paths.parents.shape[1]
    step = logits.stride(0)
    flat = logits.as_strided(((len(logits) - 1) * step + logits.shape[1],), (1,))
    node = rows[:, None] * nodes + torch.arange(nodes, device=rows.device)
    start = (node * step)[:, :, None]
    base = (lines * ledger.vocabulary)[:, None]
    rates = ledger.rates[lines][:, None, None, :]

    way = start + paths.tokens
    on_way = torch.take(flat, way)
    same = paths.tokens[:, :, :, None] == paths.tokens[:, :, None, :]
    met = (same & paths.valid[:, :, None, :]).sum(dim=3)
    way_counts = torch.take(ledger.counts, base[:, :, None] + paths.tokens) + met
    if listed > 0:
        # A list is filled up with token 0, which gets here what its own count asks for.
        known = ledger.tokens[lines, :listed]
        counts = torch.take(ledger.counts, base + known)[:, None, :]
        place = start + known[:, None, :]
        changed = _penalized(torch.take(flat, place), counts, rates)
        flat.scatter_(0, place.view(-1), changed.view(-1))
    # Last, so that it counts where a token is in both.
    flat.scatter_(0, way.view(-1), _penalized(on_way, way_counts, rates).view(-1))
    _ban(flat, start, lines, ledger, paths)


def _ban(
    flat: torch.Tensor, start: torch.Tensor, lines: torch.Tensor, ledger: Ledger, paths: Paths
) -> None:
    """Forbid stop tokens where fewer tokens than the minimum were put out."""
    place = start + ledger.stops[lines][:, None, :]
    before = ledger.length[lines][:, None] + 1 + paths.depths
    banned = (before < ledger.minimum[lines][:, None])[:, :, None]
    changed = torch.take(flat, place).masked_fill(banned, float("-inf"))
    flat.scatter_(0, place.reshape(-1), changed.view(-1))


def _penalized(logits: torch.Tensor, counts: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    """Logits [R, M, N] of tokens that were put out `counts` times; rates [R, 1, 1, 3]."""
    frequency, presence, repetition = rates.unbind(dim=3)
    seen = counts > 0
    taken = frequency * counts + presence * seen
    rest = (logits - taken).to(logits.dtype)
    factor = torch.where(seen, repetition, 1.0)
    return torch.where(rest < 0, rest * factor, rest / factor).to(logits.dtype)
