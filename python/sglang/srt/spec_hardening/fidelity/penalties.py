"""Penalties and the ban of stop tokens at every node of the windows of a verify step.

A logit changes only where its token was put out, so only those are touched: the tokens in the
request's line and those of the window. All of them are candidates at every node, with the count
that they have there: the line's, and how often they are on the way to the node. A candidate with
none keeps its logit, and one that is in both lists gets the same logit twice.

Each operation costs a launch, which is most of what this costs; so what stays the same as long as
the batch does is made once (`Terms`), and what no request of the batch asks for is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sglang.srt.spec_hardening.fidelity.fields import Fields
from sglang.srt.spec_hardening.fidelity.ledger import Ledger
from sglang.srt.spec_hardening.fidelity.tree import Ways


@dataclass(frozen=True)
class Spots:
    """Where the logits of the windows of a batch are, for one width.

    Attributes:
        start: int64 [R, M, 1], place of each node's first logit.
        stops: int64 [R, M, S], places of its stop tokens.
        short: int64 [R, M, 1], for chains: stop tokens are banned while the line is shorter.
    """

    start: torch.Tensor
    stops: torch.Tensor
    short: torch.Tensor


@dataclass(frozen=True)
class Counts:
    """What a step knows of the tokens of its windows: N candidates, the last M its own nodes.

    Attributes:
        candidates: int64 [R, N], tokens.
        places: int64 [R, N], their places in the ledger's counts.
        totals: [R, M, N], how often each was put out when the token after a node is judged.
    """

    candidates: torch.Tensor
    places: torch.Tensor
    totals: torch.Tensor


class Terms:
    """What the requests of a batch ask for; made when the batch changes.

    Attributes:
        penalties: whether any of them has one.
    """

    def __init__(
        self,
        fields: Sequence[Fields],
        rows: torch.Tensor | None,
        lines: torch.Tensor,
        ledger: Ledger,
    ) -> None:
        """`rows`, `lines`: int64 [R], places of the requests in batch (None: all) and ledger."""
        self._rows = rows
        self._base = (lines * ledger.vocabulary)[:, None]
        self._stops = ledger.stops.index_select(0, lines)
        self._minimum = ledger.minimum.index_select(0, lines)
        frequency, presence, repetition = ledger.rates.index_select(0, lines)[
            :, None, None, :
        ].unbind(dim=3)
        self._frequency = frequency if any(one.frequency != 0.0 for one in fields) else None
        self._presence = presence if any(one.presence != 0.0 for one in fields) else None
        self._repetition = repetition if any(one.repetition != 1.0 for one in fields) else None
        given = (self._frequency, self._presence, self._repetition)
        self.penalties = any(rate is not None for rate in given)
        self._ladders: dict[int, torch.Tensor] = {}
        self._spots: dict[tuple[int, int], Spots] = {}

    def accepted(self, lengths: torch.Tensor, nodes: int) -> torch.Tensor:
        """Which nodes of chains were accepted, 1 or 0, int32 [R, M].

        Args:
            lengths: int [R], how many.
        """
        ladder = self._ladders.get(nodes)
        if ladder is None:
            ones = torch.ones(nodes + 1, nodes, dtype=torch.int32, device=lengths.device)
            ladder = self._ladders[nodes] = ones.tril(-1)
        return ladder.index_select(0, lengths)

    def count(self, lines: torch.Tensor, ledger: Ledger, ways: Ways, listed: int) -> Counts:
        """How often tokens were put out at each node.

        Args:
            lines: int64 [R], the requests' lines in the ledger.
            ways: the trees of these requests.
            listed: at least as many different tokens as any of the lines holds, at most its width.
        """
        candidates = ways.tokens
        if listed > 0:
            # A list is filled up with token 0, which gets what its own count asks for.
            known = ledger.listed(listed).index_select(0, lines)
            candidates = torch.cat([known, candidates], dim=1)
        places = candidates + self._base
        same = ways.tokens[:, :, None] == candidates[:, None, :]
        if ways.above is None:
            met = same.cumsum(dim=1, dtype=torch.int32)
        else:
            met = torch.bmm(ways.above, same.float())
        return Counts(candidates, places, torch.take(ledger.counts, places)[:, None, :] + met)

    def penalize(self, logits: torch.Tensor, counts: Counts) -> None:
        """Change the logits of the requests in place; nothing is read back to the host.

        Args:
            logits: [requests * M, vocabulary]; rows may be longer than the vocabulary in memory.
        """
        spots = self._spots_of(logits, counts.totals.shape[1])
        flat = _flat(logits)
        place = counts.candidates[:, None, :] + spots.start
        changed = self._penalized(torch.take(flat, place), counts.totals)
        flat.put_(place, changed)

    def ban(self, logits: torch.Tensor, lines: torch.Tensor, ledger: Ledger, ways: Ways) -> None:
        """Forbid stop tokens where fewer tokens than the minimum were put out."""
        spots = self._spots_of(logits, ways.tokens.shape[1])
        flat = _flat(logits)
        short = spots.short
        if ways.above is not None:
            # The root's own depth is 0, and the line lacks its token.
            short = (self._minimum[:, None] - ways.above.sum(dim=2))[:, :, None]
        banned = ledger.length.index_select(0, lines)[:, None, None] < short
        here = torch.take(flat, spots.stops)
        flat.put_(spots.stops, here.masked_fill_(banned, float("-inf")))

    def _penalized(self, logits: torch.Tensor, totals: torch.Tensor) -> torch.Tensor:
        """Logits [R, M, N] of tokens that were put out `totals` times."""
        rest, taken = logits, self._presence
        if self._frequency is not None:
            taken = self._frequency * totals
            taken = taken if self._presence is None else taken + self._presence
        if taken is not None:
            rest = (rest - taken).to(logits.dtype)
        if self._repetition is not None:
            rest = torch.where(rest < 0, rest * self._repetition, rest / self._repetition)
        if self._presence is not None or self._repetition is not None:
            rest = torch.where(totals > 0, rest, logits)
        return rest.to(logits.dtype)

    def _spots_of(self, logits: torch.Tensor, nodes: int) -> Spots:
        """Made once for each width: adaptive speculation has several."""
        step = logits.stride(0)
        found = self._spots.get((nodes, step))
        if found is None:
            found = self._spots[nodes, step] = self._made(nodes, step)
        return found

    def _made(self, nodes: int, step: int) -> Spots:
        order = torch.arange(nodes, device=self._stops.device)
        rows = self._rows
        if rows is None:
            rows = torch.arange(len(self._stops), device=order.device)
        start = ((rows[:, None] * nodes + order) * step)[:, :, None]
        short = (self._minimum[:, None] - 1 - order)[:, :, None]
        stops = start + self._stops[:, None, :]
        return Spots(start, stops, short)


def _flat(logits: torch.Tensor) -> torch.Tensor:
    """All logits of a batch in a row, with what lies between their rows."""
    length = (len(logits) - 1) * logits.stride(0) + logits.shape[1]
    return logits.as_strided((length,), (1,))
