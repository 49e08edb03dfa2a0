"""What requests have put out so far, on the device, in the order of its work.

With overlap scheduling the host learns what a step accepted only after the next step was launched,
so what was accepted is counted here by the verify step itself, right after it accepted. Nothing is
read back. Only requests with `Fields` have a line in the ledger.

The last token that a request has put out is never in its line: it is the root of the next window.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from sglang.srt.spec_hardening.fidelity.fields import Fields
from sglang.srt.spec_hardening.fidelity.lines import Lines, on_device

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req

LINES = 4
WIDTH = 256
GRAIN = 64  # listed tokens are taken in steps of so many, so that shapes seldom change


class Line:
    """One request's place in the ledger, as the host knows it.

    Attributes:
        index: which line.
        most: at least as many tokens as are in its list.
        width: most tokens that its last step can have put out; before that its prefill.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.most = 0
        self.width = 1


class Entry(NamedTuple):
    """A request that comes into the ledger, or again; None: it has no line yet."""

    req: Req
    fields: Fields
    line: Line | None


class Ledger:
    """Counts of tokens for each line, and a list of the tokens that have one.

    A list may have more: what a count of none is asked for is changed by none. So a window is
    written to the end of the lists before it is judged, and what was not accepted of it is
    overwritten by the next.

    Tensors, by line: `counts` int32 [lines, vocabulary]; `tokens` int64 [lines, width], the lists;
    `ends` int64 [lines, nodes], where the next tokens of the list go, one after the other; `length`
    int32 [lines], tokens in all; and the requests' fields. A line's counts and list are kept up as
    long as its request has a penalty, its length as long as the request may have something banned.
    """

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self.vocabulary = vocabulary
        self.device = device
        self.counts = torch.zeros(0, vocabulary, dtype=torch.int32, device=device)
        self.tokens = torch.zeros(0, WIDTH, dtype=torch.int64, device=device)
        self.ends = torch.zeros(0, 1, dtype=torch.int64, device=device)
        self.length = torch.zeros(0, dtype=torch.int32, device=device)
        self.rates = torch.zeros(0, 3, dtype=torch.float32, device=device)
        self.minimum = torch.zeros(0, dtype=torch.int64, device=device)
        self.stops = torch.zeros(0, 1, dtype=torch.int64, device=device)
        self._free: list[int] = []

    def enter(self, entries: Sequence[Entry], claimed: int = 0) -> list[Line]:
        """Lines for requests that were just prefilled; free again when the requests are gone.

        What was put out before, apart from the last token, is what prefill has written: after a
        retraction that is more than the prompt. A request that has a line keeps its place.
        `claimed` tokens of what counts as written are the step's own, which is about to write them.
        """
        lines, befores = [], []
        for req, fields, line in entries:
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
            lines.append(line)
            befores.append(before)
        if entries:
            self._write([line.index for line in lines], [one.fields for one in entries], befores)
        return lines

    def listed(self, lines: Lines, window: torch.Tensor, most: int) -> torch.Tensor:
        """The lists, int64 [R, N], with a window at their ends; a view, or a copy.

        Args:
            window: int64 [R, M].
            most: at least as many tokens as any of the lists has before it.
        """
        nodes = window.shape[1]
        # More than needed: an index behind the end would end the server, if a host were later.
        self._reserve(most + nodes + GRAIN)
        self._reserve_nodes(nodes)
        lines.put(self.tokens, lines.of(self.ends)[:, :nodes], window)
        return lines.of(self.tokens[:, : -(-(most + nodes) // GRAIN) * GRAIN])

    def add(
        self,
        lines: Lines,
        way: torch.Tensor,
        accepted: torch.Tensor,
        lengths: torch.Tensor,
        is_window: bool,
    ) -> None:
        """Count what a step put out before its last token.

        Args:
            way: int64 [R, K], the accepted tokens, root first, then any.
            accepted: int32 [R, K], 1 for those that were accepted, else 0.
            lengths: int [R], how many that are.
            is_window: the way begins as the window that was listed, as that of a chain does.
        """
        lines.count(self.counts, way, accepted)
        if not is_window:
            lines.put(self.tokens, lines.of(self.ends)[:, : way.shape[1]], way)
        lines.add(self.ends, lengths)

    def _write(
        self, indices: list[int], fields: Sequence[Fields], befores: Sequence[Sequence[int]]
    ) -> None:
        """Start lines; as many launches for many as for one."""
        widest = self.stops.shape[1]
        numbers = []
        for index, asked, before in zip(indices, fields, befores, strict=True):
            # Nothing to ban is no ban; the list is filled up with its own first entry.
            minimum = asked.min_new_tokens if asked.stop_tokens else 0
            stops = list(asked.stop_tokens) or [0]
            stops += stops[:1] * (widest - len(stops))
            numbers.append([index, len(set(before)), len(before), minimum, *stops])
        columns = on_device(numbers, torch.int64, self.device)
        where = columns[:, 0]
        rates = [[asked.frequency, asked.presence, asked.repetition] for asked in fields]
        self.counts.index_fill_(0, where, 0)
        self.tokens.index_fill_(0, where, 0)
        self.ends.index_copy_(0, where, _following(columns[:, 1:2], self.ends.shape[1]))
        self.length.index_copy_(0, where, columns[:, 2].int())
        self.minimum.index_copy_(0, where, columns[:, 3])
        self.stops.index_copy_(0, where, columns[:, 4:])
        self.rates.index_copy_(0, where, on_device(rates, torch.float32, self.device))
        seen = [
            (index, token, times, place)
            for index, before in zip(indices, befores, strict=True)
            for place, (token, times) in enumerate(Counter(before).items())
        ]
        if seen:
            row, what, times, column = on_device(seen, torch.int64, self.device).unbind(dim=1)
            self.counts.index_put_((row, what), times.int())
            self.tokens.index_put_((row, column), what)

    def _add_lines(self) -> None:
        old = len(self.length)
        more = max(LINES, old)
        for name in ("counts", "tokens", "ends", "length", "rates", "minimum", "stops"):
            tensor = getattr(self, name)
            setattr(self, name, torch.cat([tensor, tensor.new_zeros(more, *tensor.shape[1:])]))
        self._free.extend(reversed(range(old, old + more)))

    def _reserve(self, most: int) -> None:
        """Room for so many tokens in a list."""
        count, width = self.tokens.shape
        if most > width:
            more = max(most, 2 * width) - width
            self.tokens = torch.cat([self.tokens, self.tokens.new_zeros(count, more)], dim=1)

    def _reserve_nodes(self, nodes: int) -> None:
        if nodes > self.ends.shape[1]:
            self.ends = _following(self.ends[:, :1], nodes)

    def _reserve_stops(self, count: int) -> None:
        if count > self.stops.shape[1]:
            first = self.stops[:, :1].expand(-1, count - self.stops.shape[1])
            self.stops = torch.cat([self.stops, first], dim=1)


def _following(first: torch.Tensor, count: int) -> torch.Tensor:
    """`count` numbers from each of `first`, [R, 1], on."""
    return first + torch.arange(count, device=first.device)
