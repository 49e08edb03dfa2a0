"""The pulse of decoding: which part of a cycle a rank is in, how long a verify has been out.

The same calls tell a watcher, if there is one (`watch.live`), where the phases of a cycle begin.

A verify is out from its launch until its accept counts are on the CPU and were handled; on a GPU
the call that launches it returns long before, so the launching call says nothing. Written into
the rank's record without locks; `health` reads it in the parent.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from . import construction, faults, stages

_PARTS = {stage.name: number for number, stage in enumerate(stages.CYCLE, start=1)}


class Watcher(Protocol):
    """What wants to know how a cycle goes on; called on the stream that is current."""

    def launched(self, batch: Any) -> None: ...

    def entered(self, stage: str) -> None: ...

    def begin(self, phase: str) -> None: ...

    def ended(self) -> None: ...


_watcher: Watcher | None = None


def watch_with(watcher: Watcher | None) -> None:
    """Tell `watcher` from now on; None: nobody."""
    global _watcher
    _watcher = watcher


def enter(stage: str) -> None:
    """The rank begins `stage` of a cycle (prefill, draft, verify, draft_extend)."""
    rank = construction.here()
    if rank is not None:
        rank.part = _PARTS[stage]
    if _watcher is not None:
        _watcher.entered(stage)
    faults.hit(stage)


def launched(batch: Any) -> None:
    """A decode cycle begins; its result is not known yet. Idle batches have none."""
    rank = construction.here()
    if rank is not None and not batch.forward_mode.is_idle():
        rank.launched += 1
        if not rank.pending_since:
            rank.pending_since = time.monotonic()
    if _watcher is not None and not batch.forward_mode.is_idle():
        _watcher.launched(batch)


def begin(phase: str) -> None:
    """A part of a cycle begins of which only the watcher knows (`watch.phases`)."""
    if _watcher is not None:
        _watcher.begin(phase)


def ended() -> None:
    """All of a cycle is launched."""
    if _watcher is not None:
        _watcher.ended()


def completed() -> None:
    """The accept counts of the oldest cycle that was out are on the CPU."""
    rank = construction.here()
    if rank is not None:
        rank.completed += 1
        now = time.monotonic()
        rank.last_decode = now
        rank.pending_since = now if rank.launched > rank.completed else 0.0


def damage_prefill(result: Any) -> None:
    """Where a test wants the output of a prefill damaged: the states that the draft takes."""
    faults.damage_fields("prefill", result.logits_output, "hidden_states")


def damage_verify(result: Any) -> None:
    """Where a test wants the output of a verify damaged: accept lengths (shape), logits (nan)."""
    faults.damage_fields("verify", result, "accept_lens")
    faults.damage_fields("verify", result.logits_output, "next_token_logits")


def damage_draft_extend(result: Any) -> None:
    """Where a test wants the output of a draft-extend damaged: what the next draft starts from."""
    faults.damage_fields("draft_extend", result.next_draft_input, "hidden_states")


def start(decoded: bool) -> None:
    """The rank begins to serve; its self-test has, or has not, just decoded."""
    rank = construction.here()
    if rank is not None:
        rank.launched = rank.completed = 0
        rank.pending_since = 0.0
        rank.last_decode = time.monotonic() if decoded else 0.0
