"""Compares what the ranks accepted, at a rate that costs nothing, and names what differs.

Upstream's rank consensus checker compares every decision of the scheduler as it is made, for
debugging. This is the same checker for serving: it is given only what each verify step accepted,
read from the result that the scheduler has on the host anyway, and its thread compares once every
N steps (or after a moment, where fewer come). Every step is compared, so ranks that part are found
even if the next collective never ends; that is a different thread's business.

Called by: the scheduler's `init_rank_consensus_checker`, `batch_result_processor` and
`rank_consensus_checker` (patch `rank-check-at-a-rate`).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from sglang.srt.utils import rank_consensus_checker as checker

from . import construction

logger = logging.getLogger(__name__)

# A comparison waits at most this long for its N steps, so that ranks that hang are found.
PATIENCE_S = 0.5
_LONGEST = 400  # characters of a value in the report

_step = 0
_every = 0
# Own, and not the checker's: what feeds that one copies from the device in each step.
_steps: queue.Queue[str] | None = None


def configure(groups: Sequence[Any], every: int | None) -> None:
    """Start comparing every `every` verify steps; nothing where it is None or 0.

    Where upstream's own checker is on (its environment variable), that one compares: at each step.
    """
    global _every, _step, _steps
    _every, _step, _steps = every or 0, 0, None
    if not _every:
        return
    if not checker.enabled():
        checker._sync_groups = checker._create_sync_groups(list(groups))
    if not checker._sync_groups:
        return
    if not checker.enabled():
        _steps = queue.Queue()
        threading.Thread(
            target=_compare_for_ever, args=(_steps,), name="rank_check", daemon=True
        ).start()
    logger.info("Rank check: what ranks accept is compared every %d verify steps", _every)


def record(accept_lens: Sequence[int], tokens: Sequence[int], stride: int) -> None:
    """Have one verify step compared.

    Args:
        accept_lens: accepted tokens of each row, the bonus token included.
        tokens: (rows * stride,), of each row the accepted ones first.
    """
    global _step
    if _steps is None:
        return
    _step += 1
    accepted = [list(tokens[i * stride : i * stride + n]) for i, n in enumerate(accept_lens)]
    _steps.put(f"verify step {_step}: accept lengths {list(accept_lens)}, tokens {accepted}")


def name_divergence(events: Sequence[str], groups: Sequence[dist.ProcessGroup]) -> None:
    """Say which ranks parted at which event, with the value of each; on every rank.

    Called on all ranks at once, right before the checker ends the process.
    """
    for group in groups:
        ranks = dist.get_process_group_ranks(group)
        found: list[Any] = [None] * len(ranks)
        dist.all_gather_object(found, list(events), group=group)
        for index in range(max(map(len, found))):
            values = [one[index] if index < len(one) else "nothing" for one in found]
            if len(set(values)) > 1:
                text = "ranks disagree: " + "; ".join(_by_value(ranks, values))
                logger.critical("%s (found at verify step %d)", text, _step)
                if (rank := construction.here()) is not None:
                    rank.fail(text, "")
                return


def _by_value(ranks: Sequence[int], values: Sequence[str]) -> list[str]:
    """`rank 0, 1: value` for each value, the most common first."""
    of_value: dict[str, list[int]] = {}
    for rank, value in zip(ranks, values, strict=True):
        of_value.setdefault(value, []).append(rank)
    return [
        f"rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}: {value[:_LONGEST]}"
        for value, who in sorted(of_value.items(), key=lambda item: -len(item[1]))
    ]


def _compare_for_ever(steps: queue.Queue[str]) -> None:
    """Upstream's loop with a wait in it: take what is there once N steps are, compare, repeat."""
    while True:
        events = [steps.get()]
        deadline = time.monotonic() + PATIENCE_S
        while steps.qsize() < _every - 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        try:
            count = checker._all_reduce_min_int(steps.qsize())
            events += [steps.get() for _ in range(count)]
            checker._check_for_consensus(events)
        except RuntimeError as error:
            # A peer is gone. Whoever watches the processes says which; there is nothing to compare.
            logger.debug("Rank check: %s", error)
            return
