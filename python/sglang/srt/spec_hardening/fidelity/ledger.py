"""What requests have put out so far, on the device, in the order of its work.

With overlap scheduling the host learns what a step accepted only after the next step was launched,
so what was accepted is counted here by the verify step itself, right after it accepted. Nothing is
read back. Only requests with `Fields` have a line in the ledger.

The last token that a request has put out is never in its line: it is the root of the next window.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from sglang.srt.spec_hardening.fidelity.fields import Fields

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req

LINES = 4
WIDTH = 256


def on_device(values: Sequence[object], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A copy on the device that the host does not wait for."""
    host = torch.tensor(values, dtype=dtype)
    if device.type == "cuda":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)


class Line:
    """One request's place in the ledger, as the host knows it.

    Attributes:
        index: which line.
        most: at least as many different tokens as are in it.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.most = 0


class Ledger:
    """Counts of tokens for each line, and a list of the tokens that have one.

    Tensors, by line: `counts` int32 [lines, vocabulary]; `tokens` int64 [lines, width + 1],
    different tokens in the order of their first occurrence, then zeros (the last column is
    scratch); `distinct` and `length` int64 [lines], how many of those, and of tokens in all; and
    the requests' fields.
    """

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self.vocabulary = vocabulary
        self.device = device
        self.width = WIDTH
        self.counts = torch.zeros(0, vocabulary, dtype=torch.int32, device=device)
        self.tokens = torch.zeros(0, WIDTH + 1, dtype=torch.int64, device=device)
        self.distinct = torch.zeros(0, dtype=torch.int64, device=device)
        self.length = torch.zeros(0, dtype=torch.int64, device=device)
        self.rates = torch.zeros(0, 3, dtype=torch.float32, device=device)
        self.minimum = torch.zeros(0, dtype=torch.int64, device=device)
        self.stops = torch.zeros(0, 1, dtype=torch.int64, device=device)
        self._free: list[int] = []

    def enter(self, req: Req, fields: Fields, line: Line | None = None, claimed: int = 0) -> Line:
        """A line for a request that was just prefilled; it is free again when the request is gone.

        What was put out before, apart from the last token, is what prefill has written: after a
        retraction that is more than the prompt. A request that has a `line` keeps its place.
        `claimed` tokens of what counts as written are the step's own, which is about to write them.
        """
        if line is None:
            if not self._free:
                self._add_lines()
            line = Line(self._free.pop())
            weakref.finalize(req, self._free.append, line.index).atexit = False
        count = max(0, req.kv.kv_committed_len - claimed - len(req.origin_input_ids))
        before = list(req.output_ids[:count])
        line.most = len(set(before))
        self._reserve(line.most)
        self._reserve_stops(len(fields.stop_tokens))
        self._write(line.index, fields, before)
        return line

    def add(
        self, lines: torch.Tensor, tokens: torch.Tensor, valid: torch.Tensor, most: int
    ) -> None:
        """Count what a step put out before its last token.

        Args:
            lines: int64 [R].
            tokens: int64 [R, K]; those that are not valid may be anything in the vocabulary.
            valid: bool [R, K], true from the left.
            most: at least as many different tokens as any of these lines holds afterwards.
        """
        self._reserve(most)
        place = lines[:, None] * self.vocabulary + tokens
        same = (tokens[:, :, None] == tokens[:, None, :]) & valid[:, None, :]
        repeated = same.tril(-1).any(dim=2)
        fresh = valid & ~repeated & (torch.take(self.counts, place) == 0)
        column = self.distinct[lines][:, None] + fresh.cumsum(dim=1) - 1
        column = torch.where(fresh, column, self.width)
        self.tokens.view(-1).scatter_(
            0, (lines[:, None] * (self.width + 1) + column).view(-1), tokens.reshape(-1)
        )
        self.counts.view(-1).scatter_add_(0, place.view(-1), valid.to(torch.int32).view(-1))
        self.distinct.index_add_(0, lines, fresh.sum(dim=1))
        self.length.index_add_(0, lines, valid.sum(dim=1))

    def _write(self, index: int, fields: Fields, before: Sequence[int]) -> None:
        listed = dict.fromkeys(before)
        self.counts[index].zero_()
        self.tokens[index].zero_()
        if listed:
            seen = on_device(before, torch.int64, self.device)
            ones = torch.ones_like(seen, dtype=torch.int32)
            self.counts[index].scatter_add_(0, seen, ones)
            self.tokens[index, : len(listed)] = on_device(list(listed), torch.int64, self.device)
        self.distinct[index].fill_(len(listed))
        self.length[index].fill_(len(before))
        rates = [fields.frequency, fields.presence, fields.repetition]
        self.rates[index] = on_device(rates, torch.float32, self.device)
        # Nothing to ban is no ban; the list is filled up with its own first entry.
        self.minimum[index].fill_(fields.min_new_tokens if fields.stop_tokens else 0)
        stops = list(fields.stop_tokens) or [0]
        stops += stops[:1] * (self.stops.shape[1] - len(stops))
        self.stops[index] = on_device(stops, torch.int64, self.device)

    def _add_lines(self) -> None:
        old = len(self.length)
        more = max(LINES, old)
        for name in ("counts", "tokens", "distinct", "length", "rates", "minimum", "stops"):
            tensor = getattr(self, name)
            setattr(self, name, torch.cat([tensor, tensor.new_zeros(more, *tensor.shape[1:])]))
        self._free.extend(reversed(range(old, old + more)))

    def _reserve(self, most: int) -> None:
        """Room for so many different tokens in a line."""
        if most <= self.width:
            return
        width = max(most, 2 * self.width)
        wider = self.tokens.new_zeros(len(self.tokens), width + 1)
        wider[:, : self.width] = self.tokens[:, : self.width]
        self.tokens, self.width = wider, width

    def _reserve_stops(self, count: int) -> None:
        if count > self.stops.shape[1]:
            first = self.stops[:, :1].expand(-1, count - self.stops.shape[1])
            self.stops = torch.cat([self.stops, first], dim=1)
