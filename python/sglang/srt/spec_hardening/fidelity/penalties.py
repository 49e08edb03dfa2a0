"""Penalties and the ban of stop tokens at every node of the windows of a verify step.

A logit changes only where its token was put out, so only those are touched: the tokens in the
request's list, which the window is a part of. All of them are candidates at every node, with the
count that they have there: the line's, and how often they are on the way to the node. A candidate
with none keeps its logit, and one that is listed twice gets the same logit twice.

Each operation costs a launch, which is most of what this costs; so what stays the same as long as
the batch does is made once (`Terms`), and what no request of the batch asks for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sglang.srt.spec_hardening.fidelity.fields import Fields
from sglang.srt.spec_hardening.fidelity.ledger import Ledger
from sglang.srt.spec_hardening.fidelity.lines import Lines
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
    """What a step knows of the tokens that it may have to penalize.

    Attributes:
        candidates: int64 [R, N], tokens.
        totals: [R, M, N], how often each was put out when the token after a node is judged.
    """

    candidates: torch.Tensor
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
        lines: Lines,
        ledger: Ledger,
    ) -> None:
        """`rows`: int64 [R], places of the requests in the batch; None: all of it."""
        self._rows = rows
        self._stops = ledger.stops.index_select(0, lines.index)
        self._minimum = ledger.minimum.index_select(0, lines.index)
        frequency, presence, repetition = ledger.rates.index_select(0, lines.index)[
            :, None, None, :
        ].unbind(dim=3)
        self._frequency = frequency if any(one.frequency != 0.0 for one in fields) else None
        self._presence = presence if any(one.presence != 0.0 for one in fields) else None
        self._repetition = repetition if any(one.repetition != 1.0 for one in fields) else None
        given = (self._frequency, self._presence, self._repetition)
        self.penalties = any(rate is not None for rate in given)
        self._scaled = _scaling([one.repetition for one in fields])
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

    def count(self, lines: Lines, ledger: Ledger, ways: Ways, most: int) -> Counts:
        """How often tokens were put out at each node.

        Args:
            ways: the trees of these requests.
            most: at least as many tokens as any of their lists has.
        """
        candidates = ledger.listed(lines, ways.tokens, most)
        same = ways.tokens[:, :, None] == candidates[:, None, :]
        if ways.above is None:
            met = same.cumsum(dim=1, dtype=torch.int32)
        else:
            met = torch.bmm(ways.above, same.float())
        return Counts(candidates, lines.gather(ledger.counts, candidates)[:, None, :] + met)

    def penalize(self, logits: torch.Tensor, counts: Counts) -> None:
        """Change the logits of the requests in place; nothing is read back to the host.

        Args:
            logits: [requests * M, vocabulary]; rows may be longer than the vocabulary in memory.
        """
        count, nodes, _ = counts.totals.shape
        if self._rows is None:
            every = logits.view(count, nodes, -1)
            place = counts.candidates[:, None, :].expand(-1, nodes, -1)
            every.scatter_(2, place, self._penalized(every.gather(2, place), counts.totals))
            return
        flat = _flat(logits)
        place = counts.candidates[:, None, :] + self._spots_of(logits, nodes).start
        flat.put_(place, self._penalized(torch.take(flat, place), counts.totals))

    def ban(self, logits: torch.Tensor, lines: Lines, ledger: Ledger, ways: Ways) -> None:
        """Forbid stop tokens where fewer tokens than the minimum were put out."""
        spots = self._spots_of(logits, ways.tokens.shape[1])
        flat = _flat(logits)
        short = spots.short
        if ways.above is not None:
            # The root's own depth is 0, and the line lacks its token.
            short = (self._minimum[:, None] - ways.above.sum(dim=2))[:, :, None]
        banned = lines.of(ledger.length)[:, None, None] < short
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
            rest = self._scaled(rest, rest * self._repetition, rest / self._repetition)
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


def _scaling(rates: Sequence[float]) -> Callable[..., torch.Tensor]:
    """What of `(logits, multiplied, divided)` are the scaled logits: the second where the first is
    negative, else the third. With rates on one side of 1 that is the lesser or the greater one."""
    if all(rate >= 1.0 for rate in rates):
        return _lesser
    if all(0.0 < rate <= 1.0 for rate in rates):
        return _greater
    return _by_sign


def _lesser(_: torch.Tensor, multiplied: torch.Tensor, divided: torch.Tensor) -> torch.Tensor:
    return torch.minimum(multiplied, divided)


def _greater(_: torch.Tensor, multiplied: torch.Tensor, divided: torch.Tensor) -> torch.Tensor:
    return torch.maximum(multiplied, divided)


def _by_sign(logits: torch.Tensor, multiplied: torch.Tensor, divided: torch.Tensor) -> torch.Tensor:
    return torch.where(logits < 0, multiplied, divided)


def _flat(logits: torch.Tensor) -> torch.Tensor:
    """All logits of a batch in a row, with what lies between their rows."""
    length = (len(logits) - 1) * logits.stride(0) + logits.shape[1]
    return logits.as_strided((length,), (1,))
