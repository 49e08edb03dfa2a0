"""Measure what a step costs on this server: the table that `auto` decides by.

Called by: `start.prove` (`worker.attach` asks it to), on every rank in step, once the rank can
decode and before it is ready.
Every rank runs the same batches; what counts is rank 0's clock, and its table goes to all.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from ..self_test import quiet, scope
from . import exchange
from .auto import AutoDecider
from .cells import MeasureError, line_of, phases, plan_cells, spread_out
from .cost import CostTable, Line
from .pending import CAPACITY
from .rehearsal import WARM, growth, rehearse
from .stopwatch import Stopwatch

logger = logging.getLogger(__name__)

# After so many seconds no further cell is begun; two on the shorter context are measured always.
SECONDS = 20.0


def measure(scheduler: Any) -> None:
    """Give this rank's decider its table. No effect without `auto`.

    Raises:
        MeasureError: no room for a single request, or a phase did not run.
    """
    threshold = getattr(scheduler.draft_worker, "threshold", None)
    if threshold is None or not isinstance(threshold.decider, AutoDecider):
        return
    decider = threshold.decider
    if (reason := scope.reason_against_driving(scheduler)) is not None:
        decider.why_no_table = reason
        if scheduler.metrics_reporter.is_stats_logging_rank:
            logger.warning("Batch threshold: always %s", decider.reason)
        return
    begun = time.monotonic()
    kept = (threshold.on, threshold.counts.copy())
    with quiet.no_trace(scheduler):
        quiet.flush(scheduler)
        table = _agreed(scheduler, _measured(scheduler, begun))
    threshold.on, threshold.counts = kept
    decider.begin(table)
    exchange.attach(scheduler)
    if scheduler.metrics_reporter.is_stats_logging_rank:
        cells = sum(len(line.rows) for line in table.lines)
        logger.info(
            "Batch threshold: costs of %d cells measured in %.1f s; with %.2f tokens a cycle, %s",
            cells,
            time.monotonic() - begun,
            decider.acceptance.accept_length,
            decider.crossings_in_words,
        )


def _measured(scheduler: Any, begun: float) -> CostTable:
    watch = Stopwatch(scheduler.device)
    width = scheduler.draft_worker.speculative_num_draft_tokens
    lines: list[Line] = []
    for context, counts in plan_cells(*_limits(scheduler), growth(width)):
        cells: dict[int, dict[str, float]] = {}
        for rows in spread_out(counts):
            if (lines or len(cells) > 1) and not _all(scheduler, _has_time(begun)):
                break
            if not cells and not lines and scheduler.device != "cpu":
                rehearse(scheduler, rows, context, watch)  # kernels are compiled on first use
            laps = rehearse(scheduler, rows, context, watch)
            if laps:  # none if the scheduler does not run so many together
                cells[rows] = phases(laps, watch.seconds, WARM, CAPACITY)
        if cells:
            lines.append(line_of(context, cells))
    if not lines:
        raise MeasureError("no batch of the rehearsal ran; give a number instead of auto")
    return CostTable(width, tuple(lines))


def _has_time(begun: float) -> bool:
    return time.monotonic() - begun < SECONDS


def _limits(scheduler: Any) -> tuple[int, int, int, bool]:
    """Rows, tokens of all rows, tokens of one row, and whether prompts are found in the cache."""
    return (
        int(scheduler.max_running_requests),
        int(0.85 * scheduler.token_to_kv_pool_allocator.available_size()),
        int(scheduler.max_req_input_len),
        not scheduler.disable_radix_cache,
    )


def _agreed(scheduler: Any, table: CostTable) -> CostTable:
    """Rank 0's table, on every rank."""
    if scheduler.tp_group.world_size == 1:
        return table
    told = [table.as_dict()]
    torch.distributed.broadcast_object_list(
        told, src=scheduler.tp_group.ranks[0], group=scheduler.tp_cpu_group
    )
    return CostTable.from_dict(told[0])


def _all(scheduler: Any, holds: bool) -> bool:
    """Whether it holds on every rank: all go on to the next cell, or none does."""
    if scheduler.tp_group.world_size == 1:
        return holds
    flag = torch.tensor([int(holds)])
    torch.distributed.all_reduce(
        flag, op=torch.distributed.ReduceOp.MIN, group=scheduler.tp_cpu_group
    )
    return bool(flag.item())
