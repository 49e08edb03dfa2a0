"""The batch threshold at work in an EAGLE worker: which step it is, and what the draft is owed.

Called by: `speculative/eagle_worker_v2.py` (patch `batch-threshold`): `attach` when its graphs
are captured, `prefilled` at each prefill, `step` at the top of each decode; and by
`managers/scheduler_components/batch_result_processor.py` (patch `batch-threshold-acceptance`):
`observe` when the results of a decode are on the host.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import torch
from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.mem_cache.common import dsv4_needs_rebootstrap
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_utils import get_draft_input_from_target_hidden_dim
from sglang.srt.speculative.spec_utils import draft_tp_context

from .. import consensus, construction, cycle, start
from . import Decider, ThresholdError, adapters, kv_only, make_decider, pending, plain_step
from .auto import AutoDecider
from .catch_up import catch_up, write_only
from .exchange import Exchange
from .measure import measure
from .pending import CAPACITY
from .plain_graphs import PlainGraphs, capture
from .ring import Ring
from .settings import FLAG

logger = logging.getLogger(__name__)

# The start of a rehearsal: the draft catches up by the capacity, by two tokens, and by one.
REHEARSED = (*[False] * (CAPACITY + 2), True, False)


def attach(worker: Any) -> BatchThreshold | None:
    """The threshold of a worker whose backends and graphs are built; None without the flag.

    Raises:
        ThresholdError: this model or draft cannot be served with it.
    """
    decider = make_decider(get_spec(), worker)
    if decider is None:
        return None
    if isinstance(decider, AutoDecider):
        start.once_proven(measure)
    construction.enter("adaptive_states")
    draft = worker.draft_worker
    refused = {
        "a draft that shares the draft-extend's sparse attention indices": (
            draft.index_share_for_mtp_iteration
        ),
        "a KV pool of DeepSeek V4": dsv4_needs_rebootstrap(worker.token_to_kv_pool_allocator),
        "LoRA on a target's experts": adapters.refused_layers(worker.target_worker.model_runner),
        "the KV canary": draft.draft_runner.canary_manager is not None,
    }
    for what, found in refused.items():
        if found:
            raise ThresholdError(f"{FLAG} cannot be served with {what}. Leave the flag out.")
    rows = worker.req_to_token_pool.req_to_token.shape[0]
    ring = Ring(
        rows,
        CAPACITY,
        get_draft_input_from_target_hidden_dim(draft.draft_runner),
        worker.target_worker.model_runner.dtype,
        worker.device,
    )
    behind = pending.Pending(rows, CAPACITY)
    pending.publish(behind)
    logger.info(
        "Batch threshold: %d tokens of captured states for each of %d rows take %.2f GB",
        CAPACITY,
        rows,
        ring.nbytes / 2**30,
    )
    graphs = capture(worker.target_worker.model_runner)
    return BatchThreshold(worker, decider, ring, behind, graphs, kv_only.fits(draft.draft_runner))


@dataclass
class BatchThreshold:
    """One rank's state. Ranks decide alike because they see the same batches in the same order.

    Attributes:
        on: what the last decode batch did; True before the first.
        kv_only: whether the draft catches up by its KV alone while speculation stays off.
        counts: batches on and off, switches, catching-ups and how many of them by the KV alone.
        forced: decides in place of `decider` while the start-up self-test runs; not counted.
        exchange: on rank 0 with `auto`, what live batches take; None elsewhere.
    """

    worker: Any
    decider: Decider
    ring: Ring
    behind: pending.Pending
    graphs: PlainGraphs
    kv_only: bool = False
    on: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    forced: Iterator[bool] | None = None
    exchange: Exchange | None = None

    def prefilled(self, batch: Any) -> None:
        """The rows of a prefill hold requests that the draft prefills as well."""
        self.behind.clear(batch.req_pool_indices_cpu.tolist())
        if self.exchange is not None:
            self.exchange.sampler.prefilled()

    def step(
        self,
        batch: Any,
        on_publish: Callable[[torch.Tensor], None] | None,
        grammar_barrier: Callable[[], None] | None,
    ) -> Any:
        """Decide for a decode batch. The result of a plain step, or None if it is to speculate.

        Before it speculates the draft has caught up, and `batch.spec_info` says where it starts.
        """
        rows: list[int] = batch.req_pool_indices_cpu.tolist()
        tokens = sum(req.seqlen for req in batch.reqs)
        on = self._decide(len(rows), tokens)
        counts = self.behind.of(rows)
        catches_up = max(counts) > 0 if on else max(counts) >= self.behind.capacity
        tables = self.decider.refreshes.times if isinstance(self.decider, AutoDecider) else 0
        consensus.record_threshold(on, counts, tables)
        if self.exchange is not None:
            self.exchange.sampler.batch(on, len(rows), tokens, catches_up)
        if on:
            if catches_up:
                self._catch_up(batch, rows, counts)
            return None
        if catches_up:
            self._catch_up(batch, rows, counts, stays_off=True)
            counts = [0] * len(rows)
        return self._plain(batch, rows, counts, on_publish, grammar_barrier)

    @property
    def rehearsal_tokens(self) -> int:
        """New tokens that a request needs to see all of a rehearsed crossing."""
        return len(REHEARSED) + 4 * int(self.worker.speculative_num_draft_tokens)

    @contextlib.contextmanager
    def rehearsed(self, crosses: bool) -> Iterator[None]:
        """For the start-up self-test: every batch speculates, or all but some at the start.

        Its few requests would never reach a threshold of 64, and with a threshold of 1 it would
        never see a verify. The decider is not asked, so that it starts to serve untouched.
        """
        self.forced = chain(REHEARSED if crosses else (), repeat(True))
        try:
            yield
        finally:
            self.forced = None

    def observe(self, result: Any) -> None:
        """What a batch accepted is known; a plain step says nothing of the draft."""
        if not result.is_plain_step and self.forced is None:
            self.decider.observe(result.num_correct_drafts_per_req_cpu)

    def info(self) -> dict[str, Any]:
        """For `/server_info`."""
        return {
            "speculating": self.on,
            "reason": self.decider.reason,
            "switches": self.counts["switches"],
            "batches_on": self.counts["on"],
            "batches_off": self.counts["off"],
            "catch_ups": self.counts["catch_ups"],
            "catch_ups_kv_only": self.counts["catch_ups_kv_only"],
            "ring_gb": round(self.ring.nbytes / 2**30, 3),
            "graph_gb": round(self.graphs.gigabytes, 3),
            **self.decider.details(),
        }

    def _decide(self, rows: int, tokens: int) -> bool:
        if self.forced is not None:
            return next(self.forced)
        on = self.decider.decide(rows, tokens)
        if on != self.on:
            self.counts["switches"] += 1
            logger.debug("Speculation %s: %s", "on" if on else "off", self.decider.reason)
        self.on = on
        self.counts["on" if on else "off"] += 1
        return on

    def _catch_up(
        self, batch: Any, rows: Sequence[int], counts: Sequence[int], stays_off: bool = False
    ) -> None:
        """Bring the draft up to date; `batch.spec_info` then says where its next draft starts,
        unless speculation `stays_off`: the draft will be behind again before anyone asks."""
        cycle.enter("draft_extend")
        draft = self.worker.draft_worker
        short = stays_off and self.kv_only
        with (
            draft_tp_context(draft.parallel_layout),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
        ):
            if short:
                write_only(draft, batch, self.ring, rows, counts)
            else:
                start = catch_up(draft, batch, self.ring, rows, counts)
        self.behind.clear(rows)
        self.counts["catch_ups"] += self.forced is None
        if short:
            self.counts["catch_ups_kv_only"] += self.forced is None
            return
        were_behind = torch.tensor([count > 0 for count in counts]).to(
            batch.device, non_blocking=True
        )
        for name in ("topk_p", "topk_index", "hidden_states", "draft_probs"):
            new, old = getattr(start, name), getattr(batch.spec_info, name)
            if new is not None and old is not None and not all(counts):
                where = were_behind.view(-1, *[1] * (new.dim() - 1))
                new = torch.where(where, new, old.to(new.dtype))
            setattr(batch.spec_info, name, new)

    def _plain(
        self,
        batch: Any,
        rows: Sequence[int],
        counts: Sequence[int],
        on_publish: Callable[[torch.Tensor], None] | None,
        grammar_barrier: Callable[[], None] | None,
    ) -> Any:
        cycle.enter("verify")
        worker = self.worker
        result = plain_step.decode(
            worker.target_worker, self.graphs, batch, on_publish, grammar_barrier
        )
        # The scheduler asks the draft's runner when it may write to shared buffers again; the
        # draft read none in this step, and the target's runner knows.
        target, draft = worker.target_worker.model_runner, worker.draft_worker.draft_runner
        draft.shared_read_done_event = target.shared_read_done_event
        target.shared_read_done_event = None
        states = result.logits_output.hidden_states
        self.ring.store(rows, counts, states, result.next_token_ids)
        self.behind.add_one(rows)
        cycle.ended()
        return result
