"""Points of a sweep: num_steps, topk, draft tokens, threshold, communication plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

THRESHOLD = "--speculative-disable-batch-threshold"
COMM_PLAN = "--speculative-comm-plan"


class PointError(ValueError):
    """A text that names no point."""


@dataclass(frozen=True, order=True)
class Point:
    """`threshold` is "" (always speculate), "auto" or a number of requests; `plan` "" for none."""

    num_steps: int
    topk: int
    num_draft_tokens: int
    threshold: str = ""
    plan: str = ""

    @property
    def name(self) -> str:
        """`3,1,4`, with threshold and plan where they are set; unique among points."""
        text = f"{self.num_steps},{self.topk},{self.num_draft_tokens}"
        text += f" off at {self.threshold}" if self.threshold else ""
        return text + (f" plan {self.plan}" if self.plan else "")

    def arguments(self) -> tuple[str, ...]:
        """What a launch needs besides steps, topk and draft tokens."""
        return (
            *((THRESHOLD, self.threshold) if self.threshold else ()),
            *((COMM_PLAN, self.plan) if self.plan else ()),
        )

    def why_not(self, most_requests: int, ranks: int) -> str | None:
        """Why measuring it would be of no use, or None. `most_requests` is the largest load."""
        steps, topk, width = self.num_steps, self.topk, self.num_draft_tokens
        if min(steps, topk) < 1:
            return "num_steps and topk are at least 1; no speculation is the baseline"
        if topk == 1 and width != steps + 1:
            return f"topk 1 is a chain: {steps} steps make {steps + 1} draft tokens, not {width}"
        if width < steps + 1:
            return f"{width} draft tokens have no room for {steps} steps and the verified token"
        most = 1 + topk + (steps - 1) * topk * topk
        if width > most:
            return f"a tree of {steps} steps and topk {topk} has {most} tokens at most, not {width}"
        if self.threshold.isdigit() and int(self.threshold) > most_requests:
            return f"no load of the sweep reaches the threshold of {self.threshold} requests"
        if self.plan and ranks < 2:
            return "a communication plan has nothing to plan with one rank (--tp-size)"
        return None


def chain(num_steps: int) -> Point:
    """topk 1."""
    return Point(num_steps, 1, num_steps + 1)


def grid(
    steps: Sequence[int],
    topks: Sequence[int],
    widths: Sequence[int],
    thresholds: Sequence[str],
    plans: Sequence[str],
) -> list[Point]:
    """The product of all; without `widths` those of a chain, for a tree the steps times topk + 1.

    A topk of 1 leaves no choice of the width, so the widths given are for trees only.
    """
    points = []
    for num_steps, topk, threshold, plan in itertools.product(
        steps, topks, thresholds or [""], plans or [""]
    ):
        own = [num_steps * topk + 1]
        for width in own if topk == 1 or not widths else widths:
            points.append(Point(num_steps, topk, width, "" if threshold == "none" else threshold,
                                "" if plan == "none" else plan))  # fmt: skip
    return list(dict.fromkeys(points))


def threshold(text: str) -> str:
    """`text`, if it says when to switch off: none, auto, or a number of requests.

    Raises:
        PointError: it says something else.
    """
    text = text.strip()
    if text in ("none", "auto") or (text.isascii() and text.isdigit() and int(text) > 0):
        return text
    raise PointError(f"--threshold {text!r}: write none, auto or a number of requests from 1 on")


def of_tuples(text: str) -> tuple[list[Point], list[int]]:
    """SpecForge's `batch,steps,topk,draft` apart by blanks: points, and the batches in them.

    `1,0,0,0` is the baseline, which a sweep has anyway.

    Raises:
        PointError: a word that is not four numbers.
    """
    points, batches = [], []
    for word in text.split():
        try:
            batch, steps, topk, width = map(int, word.split(","))
        except ValueError:
            raise PointError(f"{word!r} is not batch,steps,topk,draft") from None
        batches.append(batch)
        if steps:
            points.append(Point(steps, topk, width))
    return list(dict.fromkeys(points)), sorted(set(batches))


def prune(
    points: Sequence[Point], most_requests: int, ranks: int
) -> tuple[list[Point], list[tuple[str, str]]]:
    """The points to measure, and (name, reason) of those that are not."""
    reasons = {point: point.why_not(most_requests, ranks) for point in points}
    kept = [point for point, why in reasons.items() if why is None]
    return kept, [(point.name, why) for point, why in reasons.items() if why is not None]
