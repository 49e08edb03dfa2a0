"""The loop: rounds of requests, judged, measured; a failing round is made small."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from sglang_spec.client import Client

from . import leaks
from .case import Case, Failing
from .drive import Outcome, drive
from .judge import Difference, Rules, judge
from .leaks import Leak, Sample
from .planner import Planner, Round
from .reference import Reference
from .shrink import Shrinker, Shrunk


def _say(line: str) -> None:
    print(line, flush=True)


class Subject(Protocol):
    """The server under test."""

    @property
    def url(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    def ended(self) -> str:
        """The end of its log if it has ended, else nothing."""
        ...

    def restart(self) -> None:
        """Raises if it has ended and is not ours to start."""
        ...


@dataclass
class Found:
    """What a soak has sent and found so far."""

    requests: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    leaks: list[Leak] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    failing: Failing | None = None
    shrunk: Shrunk | None = None

    @property
    def clean(self) -> bool:
        return not self.differences and not self.leaks


@dataclass(frozen=True)
class Soak:
    """Args: `timeout` of a silent request, s; `gpu` whether to watch its memory; `say` a line."""

    subject: Subject
    reference: Reference
    rules: Rules
    settings: dict[str, Any]
    timeout: float = 120.0
    gpu: bool = False
    say: Callable[[str], None] = _say

    def run(
        self, planner: Planner, requests: int, size: int, seconds: float, shrink_for: float
    ) -> Found:
        """Rounds of `size` until `requests` are sent, `seconds` are over or one differs."""
        found = Found()
        end = time.monotonic() + seconds
        number = 0
        while found.requests < requests and time.monotonic() < end:
            planned = planner.round(number, min(size, requests - found.requests))
            found.differences += self.round(planned, found)
            if found.differences:
                self._make_small(planner.seed, planned, found, shrink_for)
                break
            with_client = Client(self.subject.url, self.timeout)
            found.samples.append(
                leaks.sample(with_client, self.subject.pid, found.requests, self.gpu)
            )
            with_client.close()
            self.say(f"round {number}: {found.requests} requests, {planned.at_once} at once")
            number += 1
        if not found.differences:
            found.counts["switches of speculation"] = self._switches()
        found.leaks = leaks.leaks(found.samples)
        return found

    def _switches(self) -> int:
        """How often the batch threshold has turned speculation off or on again, on all replicas."""
        with closing(Client(self.subject.url, self.timeout)) as client:
            states = client.get("/server_info").json()["internal_states"]
        return sum(state.get("batch_threshold", {}).get("switches", 0) for state in states)

    def round(
        self, planned: Round, found: Found | None = None, ask: bool = True
    ) -> list[Difference]:
        """Send one round and judge it. `ask` also the baseline, where there is an oracle."""
        expected, differences = self.reference.expected(planned.cases, self.timeout, ask)
        outcomes = drive(self.subject.url, planned.cases, planned.at_once, self.timeout)
        for case, outcome in zip(planned.cases, outcomes, strict=True):
            differences += judge(case, outcome, expected.get(case.number), self.rules)
        if found is not None:
            found.requests += len(planned.cases)
            count(found.counts, planned.cases, outcomes)
            found.counts["aborted past their end"] += sum(
                self.rules.past_its_end(outcome, expected[outcome.number])
                for outcome in outcomes
                if outcome.number in expected
            )
        if differences and (log := self.subject.ended()):
            differences.append(Difference("error", differences[0].number, f"it ended: {log}"))
        return differences

    def _make_small(self, seed: int, planned: Round, found: Found, seconds: float) -> None:
        kinds = {difference.kind for difference in found.differences}
        for difference in found.differences[:5]:
            self.say(str(difference)[:400])
        self.say(f"making round {planned.number} small ({len(planned.cases)} requests)")

        def fails(cases: Sequence[Case]) -> bool:
            if self.subject.ended():
                self.subject.restart()
            client = Client(self.subject.url, self.timeout)
            client.flush_cache()
            client.close()
            said = self.round(Round(planned.number, planned.at_once, tuple(cases)), ask=False)
            return any(difference.kind in kinds for difference in said)

        found.shrunk = Shrinker(fails, seconds).shrink(planned.cases)
        found.failing = Failing(
            seed,
            planned.number,
            planned.at_once,
            self.settings,
            found.shrunk.cases,
            tuple(str(difference)[:400] for difference in found.differences[:20]),
        )


def count(counts: Counter[str], cases: Sequence[Case], outcomes: Sequence[Outcome]) -> None:
    """What kinds of requests were sent, and what happened to them."""
    for case, outcome in zip(cases, outcomes, strict=True):
        counts["greedy" if case.greedy else "sampled"] += 1
        counts["streamed"] += case.stream
        counts[case.leave or "to the end"] += 1
        counts["with logprobs"] += case.logprobs > 0
        counts["prompt tokens"] += len(case.prompt)
        counts["new tokens"] += len(outcome.tokens)
        counts["stopped by a token"] += outcome.finish.get("type") == "stop"
        counts["aborted on their way"] += outcome.finish.get("type") == "abort"
        counts["prefix hits"] += bool(outcome.meta.get("cached_tokens"))
        counts["retractions"] += int(outcome.meta.get("num_retractions") or 0)
        counts["verify cycles"] += int(outcome.meta.get("spec_verify_ct") or 0)
