"""One measurement: what a load on a server gave, and whether it may be compared at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..demo import acceptance
from ..smoke.decode import NEAR_ONE
from .cells import Cell
from .lossless import Equality
from .side import Facts
from .traffic import Answer, Reply

# Upstream's names, so that scripts for its own files read these too.
KEPT = (
    "duration",
    "completed",
    "output_throughput",
    "total_input_tokens",
    "total_output_tokens",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "mean_itl_ms",
    "median_itl_ms",
    "p99_itl_ms",
    "concurrency",
)
# Of the requests that should run at once, so many have to on average, the tail included.
OCCUPANCY = 0.6


def measurement(
    cell: Cell, facts: Facts, reply: Reply, equality: Equality | None, speculates: bool
) -> dict[str, Any]:
    """The entry of the run file, without side, cell and round.

    `accept_length` counts the bonus token and leaves the prefill's token out; all counters are
    those of the measured requests alone. `cycles_per_s` are verify cycles of requests: a step of
    8 requests is 8. `invalid` lists why it says nothing about speed; empty if it does.
    """
    figures = {key: _rounded(reply.figures[key]) for key in KEPT if key in reply.figures}
    return {
        **figures,
        **counters(reply.answers, float(reply.figures["duration"])),
        "answers_sha256": digest(reply.answers),
        "equality": equality.to_json() if equality else None,
        "invalid": reasons(cell, facts, reply, equality, speculates),
    }


def counters(answers: Sequence[Answer], duration: float) -> dict[str, Any]:
    """Acceptance over whole requests; accept length None where no cycle verified anything."""
    cycles = sum(answer.cycles for answer in answers)
    correct = sum(answer.correct_drafts for answer in answers)
    histogram = acceptance.pool(answer.histogram for answer in answers)
    length = 1 + correct / cycles if cycles else None
    return {
        "cycles": cycles,
        "cycles_per_s": round(cycles / duration, 3),
        "accept_length": _rounded(length),
        "histogram": histogram,
        "position_acceptance": [
            round(share, 4) for share in acceptance.position_acceptance(histogram)
        ],
    }


def reasons(
    cell: Cell, facts: Facts, reply: Reply, equality: Equality | None, speculates: bool
) -> list[str]:
    """Why the measurement is invalid: not what was asked for, or speculation that is broken."""
    found = [*_incomplete(cell, reply.answers)]
    reached = reply.figures.get("concurrency", 0.0)
    if cell.concurrency and reached < OCCUPANCY * cell.concurrency and not found:
        found.append(f"{reached:.1f} requests ran at a time on average, not {cell.concurrency}")
    cycles = sum(answer.cycles for answer in reply.answers)
    correct = sum(answer.correct_drafts for answer in reply.answers)
    if speculates and not facts.algorithm:
        found.append("the server runs without speculation (speculative_algorithm is not set)")
    elif speculates and not cycles and not facts.pauses:
        found.append("no verify cycle was counted")
    elif cycles and _refused(facts, reply.answers, cycles, correct):
        found.append(
            f"accept length {1 + correct / cycles:.2f}: next to nothing is accepted, so this is a "
            "fault and no speed (`sglang-spec smoke`, `sglang-spec contract`)"
        )
    if equality is not None and (unequal := equality.reason):
        found.append(unequal)
    return found


def _refused(facts: Facts, answers: Sequence[Answer], cycles: int, correct: int) -> bool:
    """Whether next to none of the drafts are accepted.

    Upstream's adaptive mode also counts cycles at 0 steps, which propose none, so of a server that
    may pause the drafts are judged and not the cycles.
    """
    told = [answer.proposed_drafts for answer in answers if answer.proposed_drafts is not None]
    if facts.pauses and len(told) == len(answers):
        return correct < (NEAR_ONE - 1) * sum(told)
    return 1 + correct / cycles < NEAR_ONE


def _incomplete(cell: Cell, answers: Sequence[Answer]) -> list[str]:
    failed = [answer for answer in answers if answer.error]
    if failed:
        last = failed[0].error.splitlines()[-1]
        return [f"{len(failed)} of {len(answers)} requests failed: {last}"]
    found = []
    for number, answer in enumerate(answers):
        if answer.prompt_tokens != cell.context:
            found.append(
                f"request {number}: the server counts {answer.prompt_tokens} prompt tokens, "
                f"{cell.context} were sent"
            )
            break
    short = [answer for answer in answers if len(answer.tokens) < 1]
    if short:
        found.append(f"{len(short)} of {len(answers)} answers are empty")
    return found


def digest(answers: Sequence[Answer]) -> str:
    """One hash of all token ids in their order."""
    return hashlib.sha256(json.dumps([answer.tokens for answer in answers]).encode()).hexdigest()


def speed(entry: Mapping[str, Any]) -> float:
    """Output tokens a second of a measurement."""
    return float(entry["output_throughput"])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)
