"""Whether a server can decode now, as its front end sees it: read, not asked.

A probe that finds a decode within its window costs nothing: no request, no prefill. Red, with a
reason, when a rank is gone or a verify has been out longer than its bound. Once red, only a decode
makes it green again; a message that was late, or a prefill, does not.

Called by: the health and readiness handlers of `srt/entrypoints/http_server.py`, and the health
endpoints of the other nodes (`launch_dummy_health_check_server`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from fastapi import Response
from sglang.srt.runtime_context import get_disagg, get_parallel, get_spec

from . import death, record

# Algorithms whose worker is EAGLEWorkerV2, which keeps the pulse.
_WATCHED = ("EAGLE", "EAGLE3", "NEXTN")


@dataclass(frozen=True)
class Pulse:
    """`trouble` is the reason to be red, None if there is none; `last_decode` the time (monotonic
    seconds) at which the last verify came back, 0 if none has."""

    trouble: str | None
    last_decode: float


def watched() -> bool:
    """Whether this server's ranks keep a pulse: they verify, all of it here, and are recorded."""
    algorithm = (get_spec().speculative_algorithm or "").upper()
    return (
        algorithm in _WATCHED
        and not get_spec().enable_multi_layer_eagle  # another worker
        and get_disagg().disaggregation_mode == "null"
        and get_parallel().pp_size == 1
        and death.board() is not None
    )


def bound() -> float:
    """Seconds a verify may be out."""
    given = get_spec().speculative_verify_timeout
    return window() if given is None else float(given)


def window() -> float:
    """Seconds a probe of upstream's waits for a message; a decode within them needs no probe."""
    return float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))


def pulse(board: record.Board, limit: float) -> Pulse:
    """The state of all ranks of a launch."""
    now = time.monotonic()
    trouble = None
    out: list[record.Rank] = []
    last = 0.0
    for rank in board.ranks():
        last = max(last, rank.last_decode)
        since = rank.pending_since
        if rank.status == record.Status.FAILED:
            cause = rank.cause.decode("utf-8", "replace")
            trouble = trouble or f"{rank.name} failed in stage {rank.place}: {cause}"
        elif rank.status != record.Status.CLOSED and not record.alive(rank.pid):
            trouble = trouble or (
                f"{rank.name} (pid {rank.pid}) is gone, last seen in stage {rank.place}"
            )
        elif since and now - since > limit:
            out.append(rank)
    return Pulse(trouble or _overdue(out, now, limit), last)


def _overdue(out: list[record.Rank], now: float, limit: float) -> str | None:
    """One rank hangs and the others wait for it in a collective, so all are named."""
    if not out:
        return None
    first, *others = out
    text = (
        f"{first.name}: no verify has returned for {now - first.pending_since:.0f} s "
        f"(bound {limit:.0f} s), last seen in stage {first.place}"
    )
    return text + "".join(f", {rank.name} in stage {rank.place}" for rank in others)


def answer(manager: Any) -> Response | None:
    """What a health probe gets without asking a rank; None: ask, by a request that decodes.

    Sets `manager.server_status` as a side effect, so that readiness and gRPC follow.
    """
    if not watched():
        return None
    from sglang.srt.managers.tokenizer_manager import ServerStatus

    seen = _seen(manager)
    if seen.trouble is not None:
        return Response(status_code=503, content=seen.trouble, media_type="text/plain")
    if manager.server_status != ServerStatus.Up:
        return None
    if seen.last_decode and time.monotonic() - seen.last_decode < window():
        return well()
    return None


def well() -> Response:
    """The answer of a server that decodes; its text is empty unless speculation is degraded.

    Verify keeps the output right whatever the draft does, so a degraded server is served from.
    """
    return Response(status_code=200, content=_alarm() or None, media_type="text/plain")


def not_as_asked(speculation: str) -> str | None:
    """For `/ready?speculation=healthy`: the alarm as a reason not to be ready.

    Without the question a degraded server is ready. Any other question than `healthy` and `any` is
    a mistake, and red: a router that asked it would else believe that it had been answered.
    """
    if speculation == "any":
        return None
    if speculation == "healthy":
        return _alarm() or None
    return f"speculation = {speculation[:40]!r}: ask /ready, or /ready?speculation=healthy"


def _alarm() -> str:
    """Why speculation is degraded on some rank, "" if it is not."""
    board = death.board() if watched() else None
    alarms = () if board is None else (rank.alarm for rank in board.ranks())
    return next((alarm.decode("utf-8", "replace") for alarm in alarms if alarm), "")


def trouble(manager: Any) -> str | None:
    """The reason for which this server must not be called ready, None if there is none."""
    return _seen(manager).trouble if watched() else None


def may_be_green(manager: Any) -> bool:
    """A probe's request got a message: enough for a server that was green, not for a red one."""
    if not watched():
        return True
    from sglang.srt.managers.tokenizer_manager import ServerStatus

    seen = _seen(manager)
    return seen.trouble is None and manager.server_status == ServerStatus.Up


def probe_tokens() -> dict[str, Any]:
    """Sampling parameters of a probe that reaches a verify: the first token is the prefill's."""
    return {"max_new_tokens": 2, "ignore_eos": True} if watched() else {}


def follower() -> Response:
    """The answer of a node that has ranks and no front end."""
    board = death.board()
    seen = None if board is None or not watched() else pulse(board, bound())
    if seen is not None and seen.trouble is not None:
        return Response(status_code=503, content=seen.trouble, media_type="text/plain")
    return well()


def _seen(manager: Any) -> Pulse:
    """The pulse, with its effect on the manager's status: red at once, green by a decode only."""
    from sglang.srt.managers.tokenizer_manager import ServerStatus

    board = death.board()
    assert board is not None
    seen = pulse(board, bound())
    if seen.trouble is not None:
        manager.server_status = ServerStatus.UnHealthy
    if manager.server_status == ServerStatus.UnHealthy:
        red_since = vars(manager).setdefault("_red_since", time.monotonic())
        if seen.trouble is None and seen.last_decode > red_since:
            manager.server_status = ServerStatus.Up
    if manager.server_status == ServerStatus.Up:
        vars(manager).pop("_red_since", None)
    return seen
