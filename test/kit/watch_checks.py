"""What must hold of a watched server that runs the tiny pair, on a CPU and on a GPU.

Every draft of the pair is accepted, so each figure is a known number or equals another one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sglang_spec.client import Answer, Client

STEPS = 3
OFF_AT = 6  # requests
FLAGS = (
    *("--speculative-disable-batch-threshold", str(OFF_AT)),
    *("--speculative-threshold-dwell", "2"),
    *("--speculative-watch", "phases", "--enable-metrics", "--decode-log-interval", "10"),
)
PHASES = ["wait", "prepare", "draft", "verify", "sample", "draft_extend"]


def watched(client: Client) -> dict[str, Any]:
    """The watch's state as `/server_info` has it."""
    state: dict[str, Any] = client.get("/server_info").json()["internal_states"][0]["speculation"]
    return state


def ask(client: Client, rows: int, tokens: int) -> list[Answer]:
    return client.generate_batch(
        [[0, *range(70 + row, 90)] for row in range(rows)], tokens, ignore_eos=True
    )


def scrape(client: Client) -> Callable[..., float]:
    """`value(name, *labels)`: the sum of the samples that have these labels."""
    lines = client.get("/metrics").text.splitlines()

    def value(name: str, *labels: str) -> float:
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(f"sglang:{name}{{") and all(label in line for label in labels)
        )

    return value


def check_phases_fill_the_cycle(client: Client, url: str, within: float) -> None:
    """From the first to the last piece of a stream, cycles pass and nothing else.

    On a busy host the one who reads the stream is kept waiting for either; that weighs less in a
    longer stream, and does not happen in all of them.
    """
    for tokens in (301, 601, *[1201] * 10):
        inside, outside = _cycle(client, url, tokens)
        print(f"cycle {1e3 * inside:.3f} ms by phases, {1e3 * outside:.3f} ms by the stream")
        if inside == pytest.approx(outside, rel=within):
            break
    assert inside == pytest.approx(outside, rel=within)
    phases = watched(client)["phases"]["1"]["phases_ms"]
    assert list(phases) == PHASES and min(phases.values()) > 0


def _cycle(client: Client, url: str, tokens: int) -> tuple[float, float]:
    """Seconds of a cycle, by the phases and by the stream of one request."""
    before = _alone(client)
    body = {
        "input_ids": [0, *range(70, 90)],
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        "stream": True,
    }
    pieces: list[tuple[float, dict[str, Any]]] = []
    with httpx.stream("POST", f"{url}/generate", json=body, timeout=600) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                pieces.append((time.perf_counter(), json.loads(line[6:])["meta_info"]))
    first, last = (pieces[n][1].get("spec_verify_ct", 0) for n in (0, -1))
    after = _alone(client)
    inside = (after[1] - before[1]) / (after[0] - before[0])
    if first == last:  # it came in one piece
        return inside, float("inf")
    return inside, (pieces[-1][0] - pieces[0][0]) / (last - first)


def _alone(client: Client) -> tuple[int, float]:
    """Cycles of one request so far, and their seconds."""
    band = watched(client)["phases"].get("1", {"cycles": 0, "cycle_ms": 0.0})
    return band["cycles"], band["cycles"] * band["cycle_ms"] / 1e3


def check_counts_are_the_requests(client: Client) -> None:
    """Cycles and drafts by position, in `/server_info` and as metrics, against `meta_info`."""
    before = watched(client)["acceptance"]
    told = _told_cycles(client)
    answers = ask(client, 4, 30) + ask(client, 1, 90)
    cycles = sum(answer.cycles for answer in answers)
    deadline = time.monotonic() + 20
    while _told_cycles(client) - told != cycles and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _told_cycles(client) - told == cycles, "Prometheus is up to date once nothing runs"
    after = watched(client)["acceptance"]
    width = str(STEPS)
    assert after["verify_cycles"][width] - before["verify_cycles"].get(width, 0) == cycles
    accepted = Counter[int]()
    for answer in answers:
        for drafts, count in enumerate(answer.correct_drafts):
            accepted[drafts] += count
    old = {place["position"]: place for place in before["positions"]}
    for place in after["positions"]:
        earlier = old.get(place["position"], {"proposed": 0, "correct": 0})
        correct = sum(count for drafts, count in accepted.items() if drafts >= place["position"])
        assert place["proposed"] - earlier["proposed"] == cycles
        assert place["correct"] - earlier["correct"] == correct
    metrics = scrape(client)
    for place in after["positions"]:
        labels = f'num_steps="{STEPS}"', f'position="{place["position"]}"'
        assert metrics("spec_proposed_drafts_total", *labels) == place["proposed"]
        assert metrics("spec_correct_drafts_total", *labels) == place["correct"]
    band = watched(client)["phases"]["1"]
    seen = metrics("spec_phase_seconds_count", 'batch_size="1"', 'phase="verify"')
    assert seen == pytest.approx(band["cycles"], abs=2)  # one more may have been read in between


def _told_cycles(client: Client) -> float:
    return scrape(client)("spec_verify_cycles_total", f'num_steps="{STEPS}"')


def check_switches_and_time_off(client: Client) -> None:
    before = watched(client)["acceptance"]
    ask(client, OFF_AT, 30)
    ask(client, 1, 30)
    after = watched(client)["acceptance"]
    switches = {(each["from"], each["to"], each["reason"]) for each in after["switches"]}
    assert switches == {(STEPS, 0, "batch_size"), (0, STEPS, "batch_size")}
    assert after["plain_cycles"] > before["plain_cycles"]
    assert after["seconds_off"] > before["seconds_off"]
    assert after["accept_length"] == STEPS + 1, "plain steps are no cycles"
    metrics = scrape(client)
    assert metrics("spec_plain_cycles_total") == after["plain_cycles"]
    assert metrics("spec_switches_total", 'from_steps="3"', 'to_steps="0"') >= 1
    assert metrics("spec_decode_seconds_total", 'speculation="off"') > 0
    assert "decode" in watched(client)["phases"]["5-8"]["phases_ms"]
