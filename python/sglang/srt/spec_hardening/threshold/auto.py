"""`--speculative-disable-batch-threshold auto`: speculate where the measured costs say it pays.

A cycle pays while the tokens it is expected to give, times the seconds of a plain step, exceed its
own seconds. The decision is a function of values that every rank has alike: row and token counts,
accept results, and the table that rank 0 measured and all ranks were sent, at start and whenever
live batches took longer or shorter since (`exchange`). No clock is read.
Imports without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .acceptance import Acceptance
from .cost import CostTable
from .refreshes import KINDS, Refreshes
from .rules import Rules, Why


class AutoDecider:
    """One for each scheduler. Speculation is on until a table says otherwise."""

    def __init__(
        self, acceptance: Acceptance, rules: Rules | None = None, table: CostTable | None = None
    ) -> None:
        self.table = table
        self.refreshes = Refreshes(table)
        self.why_no_table = "the server is starting"
        self.acceptance = acceptance
        self.switches = 0
        self._rules = rules or Rules()
        self._on = True
        self._why = Why.UNMEASURED
        self._batches = self._rules.dwell  # in this state; the first change need not wait
        # Plain steps' worth of time, against the other state: with no more than one for a batch,
        # and all.
        self._lost = self._lost_in_all = 0.0
        self._probe_after = self._rules.first_probe
        self._probing = False
        self._last = (1, 1.0)

    def begin(self, table: CostTable) -> None:
        """Begin to serve with the table of the start. What the start-up's own requests accepted
        says nothing of the traffic."""
        self.table, self.refreshes = table, Refreshes(table)
        self.acceptance = self.acceptance.fresh()

    def refresh(self, table: CostTable) -> None:
        """Decide by `table` from the next batch on; called on every rank before the same batch."""
        self.table = table
        self.refreshes.came()

    @property
    def on(self) -> bool:
        return self._on

    def decide(self, rows: int, tokens: int | None = None) -> bool:
        """Whether the batch about to be launched speculates.

        Args:
            rows: requests in it, the same on every rank; 0 changes nothing.
            tokens: context of all of them together; None for the shortest that was measured.
        """
        if self.table is None or rows < 1:
            return self._on
        context = self.table.lines[0].context if tokens is None else tokens / rows
        self._last = (rows, context)
        self._batches += 1
        self.refreshes.batches += 1
        gain = self.gain(rows, context)
        loss = self._loss(rows, context, gain)
        self._lost = max(0.0, self._lost + min(loss, 1.0))
        self._lost_in_all = max(0.0, self._lost_in_all + loss)
        is_due = self._lost >= self._rules.patience
        has_stayed = self._batches > self._stay
        self._why = Why.PROBE if self._probing else Why.WAIT if self._lost else Why.GAIN
        if is_due and (has_stayed or self._is_over_limit):
            self._change(not self._on)
        elif not self._on and self._is_due_for_probe(gain):
            self._probe()
        elif self._probing and has_stayed:
            self._probing, self._probe_after = False, self._rules.first_probe  # it paid
        return self._on

    def observe(self, correct_drafts: Sequence[int]) -> None:
        """Accept results of one batch that speculated; those of plain steps are not passed."""
        self.acceptance.observe(correct_drafts)

    def gain(self, rows: int, context: float, accept_length: float | None = None) -> float:
        """Speed of speculation over plain decode: above 1 it pays. Needs a table."""
        assert self.table is not None
        length = self.acceptance.accept_length if accept_length is None else accept_length
        return length * _speed(self.table, rows, context)

    def _loss(self, rows: int, context: float, gain: float) -> float:
        """Plain steps' worth of time that one more batch of the present kind loses; negative where
        it wins. A cycle may be as long as seven steps, so one that does not pay may be too many."""
        assert self.table is not None
        if not self._on:
            return gain - 1 - self._rules.margin
        step = self.table.step_seconds(rows, context)
        return (1 - gain) * self.table.cycle_seconds(rows, context) / step

    @property
    def _stay(self) -> int:
        """Batches that the present state is kept, at least."""
        return max(self._rules.dwell, self._rules.probe if self._probing else 0)

    @property
    def _is_over_limit(self) -> bool:
        """Whether cycles end within their dwell. Those of a probe do not: they are there to find
        out whether the loss that is foreseen is still true."""
        return self._on and not self._probing and self._lost_in_all >= self._rules.limit

    def crossing(self, context: float) -> int | None:
        """The least number of rows from which speculation does not pay; None where it always does.

        None also if it only stops to pay past the rows that were measured.
        """
        if self.table is None:
            return None
        rows = range(1, self.table.most_rows + 1)
        loses = [self.gain(count, context) < 1 for count in rows]
        last_win = max((i for i, lost in enumerate(loses) if not lost), default=-1)
        return last_win + 2 if last_win + 1 < len(loses) else None

    @property
    def reason(self) -> str:
        """Why the state is what it is, in one sentence."""
        if self.table is None:
            return f"on: the costs of a step were not measured ({self.why_no_table})"
        rows, context = self._last
        length, step = self.acceptance.accept_length, self.table.step_seconds(rows, context)
        cycle = self.table.cycle_seconds(rows, context)
        kept = {
            Why.WAIT: ", kept until the other has been better for a while",
            Why.PROBE: ", tried again to see what is accepted and what it costs now",
        }.get(self._why, "")
        return (
            f"{'on' if self._on else 'off'}{kept}: {_count(rows, 'request')} of {context:.0f} "
            f"tokens decode in {1e3 * step:.2f} ms, a speculative cycle takes {1e3 * cycle:.2f} ms "
            f"and gives {length:.2f} tokens each, {length * step / cycle:.2f} times the speed; "
            f"{self._crossing_in_words(context)}"
        )

    @property
    def crossings_in_words(self) -> str:
        """From how many requests on speculation does not pay, for each context measured."""
        return "; ".join(
            f"at {line.context} tokens {self._crossing_in_words(line.context)}"
            for line in (self.table.lines if self.table else ())
        )

    @property
    def drift(self) -> str:
        """How the table in use differs from that of the start, in words. Needs a table."""
        assert self.table is not None
        return self.refreshes.words(self.table)

    def details(self) -> dict[str, Any]:
        """For `/server_info`: crossings, acceptance, refreshes, the table in milliseconds."""
        table, refreshes = self.table, self.refreshes
        lines = table.lines if table else ()
        drifts = {f"{kind}_to_start": refreshes.ratios(table, kind) for kind in KINDS if table}
        return {
            "accept_length": round(self.acceptance.accept_length, 3),
            "accept_rates": [round(rate, 3) for rate in self.acceptance.rates],
            "off_from_requests": {str(line.context): self.crossing(line.context) for line in lines},
            **refreshes.details(),
            "milliseconds": [
                {
                    "context": line.context,
                    "requests": list(line.rows),
                    **{
                        phase: [round(1e3 * value, 3) for value in values]
                        for phase, values in line.seconds.items()
                    },
                    **{name: [round(r, 3) for r in of[at]] for name, of in drifts.items()},
                    "gain": [round(self.gain(rows, line.context), 3) for rows in line.rows],
                }
                for at, line in enumerate(lines)
            ],
        }

    def _change(self, on: bool) -> None:
        if self._probing and not on:
            self._probe_after = min(2 * self._probe_after, self._rules.last_probe)
        self._on, self._probing = on, False
        self._batches, self._why = 0, Why.GAIN
        self._lost = self._lost_in_all = 0.0
        self.switches += 1

    def _is_due_for_probe(self, gain: float) -> bool:
        """With the gain of this batch by what is accepted, and what it costs, at present."""
        if self._batches <= self._probe_after:
            return False
        enough = 1 + self._rules.margin
        if gain > enough:
            return False  # the load swings; what is accepted would do
        length, assumed = self.acceptance.accept_length, self.acceptance.prior_accept_length
        assert self.refreshes.start is not None
        # No cycle is timed while it is off, so that what made cycles slow may be gone.
        at_start = length * _speed(self.refreshes.start, *self._last)
        return max(gain * assumed / length, at_start) > enough

    def _probe(self) -> None:
        """On for a dwell, with what was seen before counting little beside what is seen now."""
        self._change(True)
        self.acceptance.fade(0.1)
        self._probing, self._why = True, Why.PROBE

    def _crossing_in_words(self, context: float) -> str:
        assert self.table is not None
        rows = self.crossing(context)
        if rows is None:
            return f"it pays up to the {self.table.most_rows} requests that were measured"
        if rows == 1:
            return "it pays at no number of requests"
        return f"it stops to pay at {_count(rows, 'request')}"


def _speed(table: CostTable, rows: int, context: float) -> float:
    """Cycles in the time of a plain step."""
    return table.step_seconds(rows, context) / table.cycle_seconds(rows, context)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
