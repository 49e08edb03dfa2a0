"""One verify step of a batch: what the patches call.

`relieve` when the scheduler prepares a step, `open_window` before verify looks at the logits,
`penalize` and `process` on them, `close` when it is known what was accepted. `plain_step` is all of
that for a step without a draft. A batch with no request that has any of these fields has no window
and costs one comparison of two lists of requests.

Called by: `srt/speculative/eagle_utils.py`, `srt/managers/scheduler.py` (patches
`penalties-by-position`, `processors-by-position`).
"""

from __future__ import annotations

import weakref
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from sglang.srt.spec_hardening.fidelity import steps
from sglang.srt.spec_hardening.fidelity.fields import fields_of
from sglang.srt.spec_hardening.fidelity.ledger import Entry, Ledger, Line
from sglang.srt.spec_hardening.fidelity.lines import Lines, on_device
from sglang.srt.spec_hardening.fidelity.plan import Plan
from sglang.srt.spec_hardening.fidelity.processors import Processors
from sglang.srt.spec_hardening.fidelity.tree import Tree

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch


class Root:
    """The tree of a step that has no draft."""

    draft_token_num = tree_topk = max_tree_depth = 1

    def __init__(self, tokens: torch.Tensor) -> None:
        # Links of a chain are not read.
        self.draft_token = self.retrieve_next_token = self.retrieve_next_sibling = tokens


class Book:
    """The ledger of this process and who is in it; one for all workers of a rank."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self.ledger = Ledger(vocabulary, device)
        self.step = steps.on(device)
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
            fields,
            places,
            lines,
            self.ledger,
            [
                (entry.req, entry.fields.min_new_tokens)
                for _, entry in entries
                if entry.fields.stop_tokens
            ],
        )


class Window:
    """A verify step with at least one request that has fields or a processor."""

    def __init__(self, step: steps.Step | None, processors: Processors | None) -> None:
        self._step = step
        self._processors = processors

    def penalize(self, logits: torch.Tensor) -> None:
        """Penalties and the ban of stop tokens, in place; before grammar and bias."""
        if self._step is not None:
            self._step.penalize(logits)

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
        if self._step is not None:
            self._step.close(accept_index, accept_lens)


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
    return Window(book.step(verify, plan, plan.bans()) if plan.held else None, called)


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
        ones = _ones(len(tokens), tokens.device)
        window.close(ones[:, None], ones)


@lru_cache
def _ones(rows: int, device: torch.device) -> torch.Tensor:
    """How many of so many roots are accepted; read only. Their running numbers are not looked at:
    roots are chains."""
    return torch.ones(rows, dtype=torch.int32, device=device)


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
