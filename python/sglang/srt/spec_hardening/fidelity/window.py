"""One verify step of a batch: what the patches call.

`relieve` when the scheduler prepares a step, `open_window` before verify looks at the logits,
`penalize` and `process` on them, `close` when it is known what was accepted. `plain_step` is all of
that for a step without a draft. A batch with no request
that has any of these fields has no window and costs one comparison of two lists of requests.

Called by: `srt/speculative/eagle_utils.py`, `srt/managers/scheduler.py` (patches
`penalties-by-position`, `processors-by-position`).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from sglang.srt.spec_hardening.fidelity.fields import fields_of
from sglang.srt.spec_hardening.fidelity.ledger import Entry, Ledger, Line
from sglang.srt.spec_hardening.fidelity.lines import Lines, on_device
from sglang.srt.spec_hardening.fidelity.penalties import Counts, Terms
from sglang.srt.spec_hardening.fidelity.processors import Processors
from sglang.srt.spec_hardening.fidelity.tree import Tree, Ways, pick, ways_of

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch


@dataclass
class Plan:
    """Where the requests with fields are, for as long as a batch stays the same.

    Attributes:
        reqs, retractions: the batch that this is for.
        held: the requests with fields and their lines.
        rows: int64 [R] on the device, places of these requests; None: the whole batch.
        lines: where they are in the ledger.
        terms: what they ask for.
        most: at least as many tokens as any of their lists has.
        short: requests that may be too short to end, and their minimum; the host may be late.
    """

    reqs: list[Req]
    retractions: list[int]
    held: list[tuple[Req, Line]]
    rows: torch.Tensor | None
    lines: Lines
    terms: Terms
    most: int
    short: list[tuple[Req, int]]

    def bans(self) -> bool:
        """Whether the step may have to ban something; what is over stays over."""
        self.short = [(req, least) for req, least in self.short if len(req.output_ids) < least]
        return bool(self.short)


class Root:
    """The tree of a step that has no draft."""

    draft_token_num = tree_topk = max_tree_depth = 1

    def __init__(self, tokens: torch.Tensor) -> None:
        self.draft_token = tokens
        self.retrieve_next_token = self.retrieve_next_sibling = tokens.new_full((1, 1), -1)


class Book:
    """The ledger of this process and who is in it; one for all workers of a rank."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self.ledger = Ledger(vocabulary, device)
        self._lines: weakref.WeakKeyDictionary[Req, tuple[Line, int]] = weakref.WeakKeyDictionary()
        self._plan: Plan | None = None

    def plan(self, reqs: list[Req], claimed: int = 0) -> Plan:
        """The places of a batch; a request that comes from prefill gets its line here.

        `claimed`: tokens that this step writes and that already count as written.
        """
        retractions = [req.retraction_count for req in reqs]
        last = self._plan
        if last is None or last.reqs != reqs or last.retractions != retractions:
            self._plan = last = self._made(reqs, retractions, claimed)
        return last

    def _made(self, reqs: list[Req], retractions: list[int], claimed: int) -> Plan:
        asked = [(row, req, fields_of(req)) for row, req in enumerate(reqs)]
        entries = [
            (row, Entry(req, fields, self._lines.get(req, (None, -1))[0]))
            for row, req, fields in asked
            if fields is not None
        ]
        new = [
            entry
            for row, entry in entries
            if entry.line is None or self._lines[entry.req][1] != retractions[row]
        ]
        for entry, line in zip(new, self.ledger.enter(new, claimed), strict=True):
            self._lines[entry.req] = line, entry.req.retraction_count
        held = [(entry.req, self._lines[entry.req][0]) for _, entry in entries]
        rows = [row for row, _ in entries]
        fields = [entry.fields for _, entry in entries]
        device = self.ledger.device
        places = None if len(rows) == len(reqs) else on_device(rows, torch.int64, device)
        lines = Lines([line.index for _, line in held], device)
        return Plan(
            list(reqs),
            retractions,
            held,
            places,
            lines,
            Terms(fields, places, lines, self.ledger),
            max((line.most for _, line in held), default=0),
            [
                (entry.req, entry.fields.min_new_tokens)
                for _, entry in entries
                if entry.fields.stop_tokens
            ],
        )


class Window:
    """A verify step with at least one request that has fields or a processor."""

    def __init__(
        self,
        verify: Tree,
        ledger: Ledger,
        plan: Plan | None,
        processors: Processors | None,
    ) -> None:
        self._verify = verify
        self._ledger = ledger
        self._plan = plan
        self._processors = processors
        self._ways: Ways | None = None if plan is None else ways_of(verify, plan.rows)
        self._counts: Counts | None = None
        self._bans = plan is not None and plan.bans()

    def penalize(self, logits: torch.Tensor) -> None:
        """Penalties and the ban of stop tokens, in place; before grammar and bias."""
        if self._plan is None or self._ways is None:
            return
        terms, lines = self._plan.terms, self._plan.lines
        if terms.penalties:
            self._counts = terms.count(lines, self._ledger, self._ways, self._plan.most)
            terms.penalize(logits, self._counts)
        if self._bans:
            terms.ban(logits, lines, self._ledger, self._ways)

    def process(self, logits: torch.Tensor) -> None:
        """Custom logit processors, in place; after grammar and bias."""
        if self._processors is not None:
            self._processors.apply(logits)

    def close(self, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> None:
        """Take over what was accepted; after `penalize`.

        Args:
            accept_index: int [requests, K], running numbers of the accepted nodes, then -1.
            accept_lens: int [requests], how many.
        """
        if self._processors is not None:
            self._processors.commit(accept_index, accept_lens)
        plan = self._plan
        if plan is None or self._ways is None:
            return
        width = accept_index.shape[1]
        plan.most = 0
        for req, line in plan.held:
            # The host may not have seen the step before, which may have been wider, nor this one.
            line.most = min(line.most + width, len(req.output_ids) + line.width + width)
            line.width = width
            plan.most = max(plan.most, line.most)
        lengths = pick(accept_lens, plan.rows)
        if self._bans:
            plan.lines.add(self._ledger.length, lengths)
        if self._counts is None:
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
        self._ledger.add(plan.lines, way, accepted, lengths, is_chain)


_BOOKS: dict[torch.device, Book] = {}


def open_window(
    verify: Tree,
    batch: ScheduleBatch,
    logits: torch.Tensor,
    processors: bool = True,
    claimed: int = 0,
) -> Window | None:
    """The window of a verify step, or None where no request asks for anything of this.

    Args:
        processors: whether custom logit processors are called here.
        claimed: tokens that this step writes and that `kv_committed_len` already has.
    """
    device, vocabulary = logits.device, logits.shape[-1]
    book = _BOOKS.get(device)
    if book is None:
        book = _BOOKS[device] = Book(vocabulary, device)
    plan = book.plan(batch.reqs, claimed)
    has_processor = processors and batch.sampling_info.has_custom_logit_processor
    if not plan.held and not has_processor:
        return None
    called = Processors(verify, batch) if has_processor else None
    return Window(verify, book.ledger, plan if plan.held else None, called)


def plain_step(
    batch: ScheduleBatch, tokens: torch.Tensor, logits: torch.Tensor, claimed: int = 0
) -> None:
    """Penalties of a step that decodes without a draft, between steps that have one, in place.

    The sampler does the rest (grammar, bias, processors) by itself.

    Args:
        tokens: integer [requests], what the step feeds to the target.
        logits: [requests, vocabulary], of the token after that.
        claimed: 1 where preparing the step has claimed the place of its token (a plain server),
            0 for a step between verify steps.
    """
    window = open_window(Root(tokens), batch, logits, processors=False, claimed=claimed)
    if window is not None:
        window.penalize(logits)
        rows = torch.arange(len(tokens), device=tokens.device)
        window.close(rows[:, None], torch.ones_like(rows))


def relieve(batch: ScheduleBatch) -> None:
    """Put upstream's penalizers out of work: they count one token a step.

    They serve the prefill, whose one token has nothing before it. A batch that is merged into this
    one wakes them up again until the next step.
    """
    orchestrator = batch.sampling_info.penalizer_orchestrator
    if orchestrator.is_required:
        for penalizer in orchestrator.penalizers.values():
            penalizer.teardown()
        orchestrator.is_required = False


def needs_last_result(batch: ScheduleBatch) -> bool:
    """Whether the step before has to be over before this one is launched."""
    return bool(batch.sampling_info.has_custom_logit_processor)
