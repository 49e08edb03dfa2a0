"""A log served under a policy: continuous batching by measured step times.

All running requests advance together, one token a plain step or the accept length a cycle, so a
request that began when the batch had come to token V ends when it has come to V + its tokens. Time
passes from event to event (an arrival, an end), and the step time is looked up anew at least every
`STRIDE` tokens, as contexts grow. A prefill stops the batch for its length. First come, first
served; a request waits while there are no rows or not enough KV entries for all its tokens.

Left out: prefix cache, chunked prefill beside decode, retraction, and the dwell of the threshold.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from .costs import Costs
from .log import Request

STRIDE = 32.0


@dataclass(frozen=True)
class Outcome:
    """Seconds of a request from arrival to end, and of its tokens after the first.

    `rows_seconds[r]` is the time in which r requests ran; `refused` were longer than the KV cache.
    """

    mean_latency: float
    p99_latency: float
    mean_token: float
    tok_s: float
    waited: int
    refused: int
    peak_rows: int
    speculating: float
    rows_seconds: dict[int, float]


def simulate(
    log: Sequence[Request], costs: Costs, off_from: int | None, kv_tokens: int | None
) -> Outcome:
    """Serve `log`; batches of `off_from` rows or more do not speculate (0: never, None: always)."""
    state = _Batch(costs, off_from)
    waiting: deque[Request] = deque()
    arrivals = deque(log)
    room = float("inf") if kv_tokens is None else float(kv_tokens)
    refused = waited = 0
    while arrivals or waiting or state.ends:
        while arrivals and arrivals[0].arrival <= state.now:
            request = arrivals.popleft()
            if request.prompt_tokens + request.output_tokens > room:
                refused += 1
            else:
                waiting.append(request)
        begun = False
        while waiting and state.fits(waiting[0], room):
            request = waiting.popleft()
            waited += state.now > request.arrival and not begun and bool(state.ends)
            state.begin(request)
            begun = True
        if begun:
            continue  # others may have come during the prefills
        until = arrivals[0].arrival if arrivals else float("inf")
        if state.ends:
            state.run(until)
        elif arrivals:
            state.now = max(state.now, until)
    return state.outcome(waited, refused)


class _Batch:
    def __init__(self, costs: Costs, off_from: int | None) -> None:
        self.now = 0.0
        self.ends: list[tuple[float, int, Request]] = []  # by the token at which they end
        self._costs, self._off_from = costs, off_from
        self._token = 0.0
        self._context = 0.0  # sum over rows of prompt tokens minus the token at which they began
        self._held = 0.0
        self._began: dict[int, tuple[float, float]] = {}
        self._number = 0
        self._latencies: list[float] = []
        self._per_token: list[float] = []
        self._tokens = 0
        self._speculating = self._decoding = 0.0
        self._rows_seconds: dict[int, float] = {}

    def fits(self, request: Request, room: float) -> bool:
        need = request.prompt_tokens + request.output_tokens
        return len(self.ends) < self._costs.most_requests and self._held + need <= room

    def begin(self, request: Request) -> None:
        """Prefill it: its first token comes from there."""
        self.now += request.prompt_tokens * self._costs.prefill
        self._number += 1
        self._began[self._number] = (self.now, self._token)
        self._context += request.prompt_tokens - self._token
        self._held += request.prompt_tokens + request.output_tokens
        end = self._token + request.output_tokens - 1
        heapq.heappush(self.ends, (end, self._number, request))

    def run(self, until: float) -> None:
        """To the next end, or to `until`, or `STRIDE` tokens on."""
        rows = len(self.ends)
        context = max(self._context / rows + self._token, 1.0)
        speculates = self._off_from is None or rows < self._off_from
        seconds = (
            self._costs.table.cycle_seconds(rows, context) / self._costs.accept_length
            if speculates
            else self._costs.table.step_seconds(rows, context)
        )
        tokens = min(self.ends[0][0] - self._token, STRIDE)
        if self.now + tokens * seconds > until:
            tokens = max(until - self.now, 0.0) / seconds
            passed, self.now = until - self.now, until
        else:
            passed = tokens * seconds
            self.now += passed
        self._token += tokens
        self._decoding += passed
        self._speculating += passed if speculates else 0.0
        self._rows_seconds[rows] = self._rows_seconds.get(rows, 0.0) + passed
        while self.ends and self.ends[0][0] <= self._token + 1e-9:
            self._end(*heapq.heappop(self.ends)[1:])

    def _end(self, number: int, request: Request) -> None:
        began, token = self._began.pop(number)
        self._context -= request.prompt_tokens - token
        self._held -= request.prompt_tokens + request.output_tokens
        self._latencies.append(self.now - request.arrival)
        self._tokens += request.output_tokens
        if request.output_tokens > 1:
            self._per_token.append((self.now - began) / (request.output_tokens - 1))

    def outcome(self, waited: int, refused: int) -> Outcome:
        latencies = self._latencies or [0.0]
        return Outcome(
            mean_latency=float(numpy.mean(latencies)),
            p99_latency=float(numpy.percentile(latencies, 99)),
            mean_token=float(numpy.mean(self._per_token or [0.0])),
            tok_s=self._tokens / self.now if self.now else 0.0,
            waited=waited,
            refused=refused,
            peak_rows=max(self._rows_seconds, default=0),
            speculating=self._speculating / self._decoding if self._decoding else 0.0,
            rows_seconds=self._rows_seconds,
        )
