"""The order of the checks, and where to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpx

from . import alive, decode, traffic
from .outcome import Outcome, Row, Verdict, finding
from .target import Target


@dataclass(frozen=True)
class Check:
    """`decisive`: after a finding here the rest would say nothing."""

    name: str
    function: Callable[[Target], Outcome]
    decisive: bool = False


CHECKS = (
    Check("health", alive.health, decisive=True),
    Check("speculation", alive.speculation, decisive=True),
    Check("self-test", alive.self_test),
    Check("chat", decode.chat, decisive=True),
    Check("acceptance", decode.acceptance),
    Check("equality", decode.equality),
    Check("parallel", traffic.parallel),
    Check("long-prompt", traffic.long_prompt),
    Check("streaming", traffic.streaming),
    Check("abort", traffic.abort),
    Check("structured-output", traffic.structured),
    Check("health-after", alive.health),
)


def rows(target: Target, checks: Sequence[Check] = CHECKS) -> Iterator[Row]:
    """Run the checks one by one; after a decisive finding the rest are `not_run`."""
    stopped_by = ""
    for check in checks:
        if stopped_by:
            yield Row(
                check.name, Outcome(Verdict.NOT_RUN, f"after the finding of {stopped_by}"), 0.0
            )
            continue
        begun = time.monotonic()
        try:
            result, lost = check.function(target), False
        except httpx.HTTPStatusError as error:
            result, lost = _refused(target, error), False
        except httpx.TransportError as error:
            result, lost = _lost(target, check.name, error), True
        yield Row(check.name, result, time.monotonic() - begun)
        if result.verdict is Verdict.FINDING and (check.decisive or lost):
            stopped_by = check.name


def _refused(target: Target, error: httpx.HTTPStatusError) -> Outcome:
    reply = error.response
    reply.read()
    return finding(
        f"{error.request.url.path} answers {reply.status_code}: {reply.text.strip()[:300]}"
        + _health_now(target),
        "the text is the server's own; see its log",
        status=reply.status_code,
    )


def _lost(target: Target, name: str, error: httpx.TransportError) -> Outcome:
    what = "no answer in time" if isinstance(error, httpx.TimeoutException) else "no connection"
    return finding(
        f"{what} in {name} ({type(error).__name__})" + _health_now(target),
        "a server that answers /health and no request cannot decode: its log names rank and stage"
        if name not in ("health", "speculation")
        else f"is a server listening at {target.url}?",
    )


def _health_now(target: Target) -> str:
    """What `/health` says after something went wrong; its 503 names the reason."""
    with suppress(httpx.TransportError):
        reply = target.http.get("/health", timeout=30.0)
        return f"; /health now answers {reply.status_code} {reply.text.strip()[:300]}".rstrip()
    return "; /health no longer answers"
