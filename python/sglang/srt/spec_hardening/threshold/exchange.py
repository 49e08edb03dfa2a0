"""A refreshed table on its way: from rank 0 to all ranks, with the requests that it received.

Rank 0 puts it among the requests of an iteration, as upstream does with its own time-outs, and
every rank finds it in the same iteration at the same place: no message of its own, no wait. Until
it was dispatched it is offered again, because an iteration may receive nothing.

Called by: `managers/scheduler.py` (`due`, patch `batch-threshold-refresh`), `measure` (`attach`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from .auto import AutoDecider
from .cost import CostTable
from .drift import Drift
from .sampler import Sampler
from .stopwatch import Stopwatch

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewCosts:
    """The message, pickled with the requests: a table as `CostTable.as_dict` gives it."""

    table: dict[str, Any]


class Exchange:
    """Rank 0's side: what live batches take, and the table that is to be sent."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._offered: NewCosts | None = None

    def due(self) -> list[NewCosts]:
        """What is to be broadcast in this iteration: nothing, or one table."""
        if self._offered is None and (table := self.sampler.drift.look()) is not None:
            self._offered = NewCosts(table.as_dict())
        return [] if self._offered is None else [self._offered]

    def arrived(self) -> None:
        self._offered = None


def attach(scheduler: Any) -> None:
    """Have every rank take new tables, and rank 0 make them, from now on.

    Args:
        scheduler: its threshold has a table that is the same on every rank.
    """
    from sglang.utils import TypeBasedDispatcher

    threshold = scheduler.draft_worker.threshold
    decider: AutoDecider = threshold.decider
    assert decider.table is not None
    if scheduler.tp_group.rank_in_group == 0:
        sampler = Sampler(Stopwatch(scheduler.device), Drift(decider.table))
        threshold.exchange = Exchange(sampler)

    def take(told: NewCosts) -> None:
        decider.refresh(CostTable.from_dict(told.table))
        if threshold.exchange is not None:
            threshold.exchange.arrived()
            logger.info("Batch threshold: %s; %s", decider.drift, decider.crossings_in_words)

    scheduler._request_dispatcher += TypeBasedDispatcher([(NewCosts, take)])


def due(scheduler: Any) -> list[NewCosts]:
    """What rank 0 adds to the requests that it broadcasts in this iteration."""
    threshold = getattr(scheduler.draft_worker, "threshold", None)
    if threshold is None or threshold.exchange is None:
        return []
    return list(threshold.exchange.due())
