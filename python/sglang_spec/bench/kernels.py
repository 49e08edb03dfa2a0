"""What runs on the device in a steady load: kernels and graph launches by step, from a profile.

Two such profiles at different concurrency answer what grows with the number of requests, whether
graphs are replayed, and how long the device waits between its kernels.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from .load import LoadError
from .scene import Steady

STEPS = 8
MOST_NAMES = 25


def profile(url: str, scene: Steady, folder: Path) -> dict[str, Any]:
    """Profile `STEPS` batches in the midst of `scene`; the trace is left in `folder`."""
    target = (folder / f"trace-{scene.key.replace(' ', '-')}-{time.time_ns()}").resolve()
    target.mkdir(parents=True)
    scene.warm(url)
    asked = {
        "output_dir": str(target),
        "num_steps": STEPS,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }
    with _load(url, scene):
        httpx.post(f"{url}/start_profile", json=asked, timeout=300).raise_for_status()
        trace = _written(target)
    return {"concurrency": scene.concurrency, **digest(_events(trace))}


@contextmanager
def _load(url: str, scene: Steady) -> Iterator[None]:
    """Run `scene` again and again inside: the profiler takes its time to begin."""
    over = threading.Event()

    def keep_on() -> None:
        while not over.is_set():
            scene.run(url)

    running = threading.Thread(target=keep_on)
    running.start()
    time.sleep(0.5)  # all requests decode by now: their prompts are cached
    try:
        yield
    finally:
        over.set()
        running.join()


def _written(folder: Path, seconds: float = 120.0) -> Path:
    """The trace of the first rank, complete: its size has stopped to change."""
    until, before = time.monotonic() + seconds, -1
    while time.monotonic() < until:
        found = sorted(folder.rglob("*.trace.json.gz"))
        if found and (size := found[0].stat().st_size) == before and size > 0:
            return found[0]
        before = found[0].stat().st_size if found else -1
        time.sleep(1.0)
    raise LoadError(f"the profiler wrote no trace into {folder} within {seconds:.0f} s")


def _events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def digest(events: Sequence[Mapping[str, Any]], steps: int = STEPS) -> dict[str, Any]:
    """Milliseconds and counts by step. Without a GPU the CPU's operators stand for kernels."""
    device = [
        event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    work = device or [event for event in events if event.get("cat") == "cpu_op"]
    names: dict[str, list[float]] = defaultdict(list)
    for event in work:
        names[short(event["name"])].append(event["dur"] / 1e3)
    calls: dict[str, int] = defaultdict(int)
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls[event["name"]] += 1
    spans: dict[str, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "gpu_user_annotation":
            spans[event["name"]] += event["dur"] / 1e3
    slowest = sorted(names.items(), key=lambda item: -sum(item[1]))[:MOST_NAMES]
    first = min((event["ts"] for event in work), default=0.0)
    last = max((event["ts"] + event["dur"] for event in work), default=0.0)
    return {
        "span_ms": round((last - first) / 1e3 / steps, 4),
        "busy_ms": round(_union(work) / 1e3 / steps, 4),
        "kernels": round(len(work) / steps, 1),
        "in_graphs": round(sum("graph node id" in e.get("args", {}) for e in device) / steps, 1),
        "calls": {
            name: round(count / steps, 2)
            for name, count in sorted(calls.items(), key=lambda item: -item[1])[:12]
        },
        "spans_ms": {name: round(value / steps, 4) for name, value in sorted(spans.items())},
        "by_name": {
            name: {"ms": round(sum(took) / steps, 4), "count": round(len(took) / steps, 2)}
            for name, took in slowest
        },
    }


def growth(few: Mapping[str, Any], many: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds a step that each request more costs, by kernel, the steepest first."""
    more = many["concurrency"] - few["concurrency"]
    names = {*few["by_name"], *many["by_name"]}
    found = {name: (_ms(many, name) - _ms(few, name)) / more for name in names}
    found["(span of a step)"] = (many["span_ms"] - few["span_ms"]) / more
    found["(device busy)"] = (many["busy_ms"] - few["busy_ms"]) / more
    return {name: round(v, 5) for name, v in sorted(found.items(), key=lambda item: -item[1])}


def short(name: str) -> str:
    """A kernel's name without its template arguments and numbers of specialisation."""
    return re.sub(r"<.*", "", name.replace("void ", ""))[:90]


def _ms(profile: Mapping[str, Any], name: str) -> float:
    return float(profile["by_name"].get(name, {}).get("ms", 0.0))


def _union(events: Sequence[Mapping[str, Any]]) -> float:
    """Microseconds in which at least one of them ran."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total
