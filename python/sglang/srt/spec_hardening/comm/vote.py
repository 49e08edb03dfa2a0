"""All ranks of a group or none: whether what each of them built is used.

A rank that fell back alone reduces with another library than its peers, and the first reduction
hangs or adds up wrong numbers. The votes go through the store that the ranks met in, not through a
collective: a rank that failed inside a constructor may have left its peers in one, and a collective
of its own would then be taken for theirs. Where peers do not come out in time, the vote raises and
the launch ends with a name instead of waiting.

Called by: `distributed/parallel_state.py`, `device_communicators/pcie_ipc_ar.py` (patch
`vote-on-all-reduce`), `layers/flashinfer_comm_fusion.py` (patch `vote-on-fusion`).
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

logger = logging.getLogger(__name__)

# Long enough for a peer that compiles: nothing else tells one that hangs from one that is slow.
TIMEOUT_S = 300.0

_rounds: Counter[str] = Counter()
_reason = ""
# What was voted down, by name, for the report of the rank.
outcomes: dict[str, str] = {}


class VoteError(RuntimeError):
    """Peers did not say whether they built something: they hang where this rank failed or waits."""


def failed(error: object) -> None:
    """Remember why this rank could not build what is voted on next."""
    global _reason
    _reason = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)


def agreed(group: dist.ProcessGroup | None, name: str, usable: bool = True) -> bool:
    """Whether every rank of `group` has built `name`; the same answer on all of them.

    Args:
        group: a CPU group; None or a group without a common store is not asked.
        usable: whether this rank has; `failed` said before why not.

    Raises:
        VoteError: a rank did not answer within TIMEOUT_S.
    """
    global _reason
    reason, _reason = _reason or ("" if usable else "not usable here"), ""
    if group is None or dist.get_world_size(group) < 2 or dist.get_backend(group) != "gloo":
        return not reason
    ranks = dist.get_process_group_ranks(group)
    against = _ballot(ranks, dist.get_rank(), name, reason)
    outcomes[name] = (
        "; ".join(f"rank {rank}: {why}" for rank, why in against.items()) or "all ranks"
    )
    if against and len(against) < len(ranks) and dist.get_rank() == ranks[0]:
        logger.warning(
            "%s is off on all %d ranks, because %d could not: %s",
            name,
            len(ranks),
            len(against),
            outcomes[name],
        )
    return not against


def all_or_none(group: dist.ProcessGroup, name: str, made: Any) -> Any:
    """`made` if every rank's is usable; else None, and `made` is out of use on this rank too.

    Where no rank has a usable one (wrong hardware), what each has is returned as it is.
    """
    usable = made is not None and not made.disabled
    if agreed(group, name, usable) or not usable:
        return made
    # Not closed: closing waits for peers that have nothing to close.
    made.disabled = True
    return None


def may_begin(group: dist.ProcessGroup, device: Any, name: str) -> bool:
    """Whether every rank gets past what the custom all-reduce checks before its first collective.

    It reads CUDA_VISIBLE_DEVICES as numbers and takes its own from that list; a rank where this
    fails would leave the others in the collective that follows.
    """
    if device.type != "cuda":
        return True
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        try:
            _ = [int(part) for part in visible.split(",")][device.index]
        except (ValueError, IndexError):
            failed(f"CUDA_VISIBLE_DEVICES={visible} has no number for device {device.index}")
    return agreed(group, f"{name} (start)")


def _ballot(ranks: Sequence[int], rank: int, name: str, reason: str) -> dict[int, str]:
    """Who is against, and why: global rank -> reason, in order of ranks."""
    electorate = f"all_or_none/{'-'.join(map(str, ranks))}/{name}"
    _rounds[electorate] += 1
    prefix = f"{electorate}/{_rounds[electorate]}"
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{prefix}/{rank}", json.dumps(reason))
    against: dict[int, str] = {}
    for peer in ranks:
        try:
            store.wait([f"{prefix}/{peer}"], timedelta(seconds=TIMEOUT_S))
        except RuntimeError as error:
            said = f"this rank: {reason}" if reason else "this rank has built it"
            raise VoteError(
                f"{name}: rank {peer} did not come out of its construction in {TIMEOUT_S:.0f} s "
                f"({said})"
            ) from error
        if why := json.loads(store.get(f"{prefix}/{peer}")):
            against[peer] = why
    return against
