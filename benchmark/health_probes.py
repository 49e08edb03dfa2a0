"""Latency of health probes while a server decodes, and what they cost it.

    python benchmark/health_probes.py [--probes 1000] [--streams 2] [--output FILE]

Starts the embedded pair, keeps `--streams` generations running, sends the probes one after the
other to /health, /health_generate and /ready in turn, and prints one JSON object: percentiles in
milliseconds, prefill batches beyond those of the load, the start-up self-test, and where it ran.
benchmark/results/health.json is the stored one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from sglang_spec.client import Client
from sglang_spec.models import embedded_pair
from sglang_spec.server import Launch, Server, Speculation

PATHS = ("/health", "/health_generate", "/ready")
TOKENS = 256
PROMPT = [1, 9690, 198, 2683, 359, 253]


class Load:
    """Generations one after the other on each of some threads, until the block ends."""

    def __init__(self, url: str, streams: int) -> None:
        self._url, self._done = url, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(streams)]
        self.requests = 0

    def _run(self) -> None:
        client = Client(self._url)
        while not self._done.is_set():
            client.generate(PROMPT, TOKENS, ignore_eos=True)
            self.requests += 1
        client.close()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()


def probe(url: str, count: int) -> list[float]:
    """Seconds of each probe; raises if one is not 200."""
    took = []
    with httpx.Client(base_url=url, timeout=60) as http:
        for number in range(count):
            begun = time.perf_counter()
            http.get(PATHS[number % len(PATHS)]).raise_for_status()
            took.append(time.perf_counter() - begun)
    return took


def measure(server: Server, probes: int, streams: int) -> dict[str, Any]:
    def prefills() -> int:
        return server.log.read_text(errors="replace").count("Prefill batch")

    with Load(server.url, streams) as load:
        time.sleep(2)
        begun, before = time.monotonic(), load.requests
        prefilled = prefills()
        took = probe(server.url, probes)
        seconds, answered = time.monotonic() - begun, load.requests - before
        caused = prefills() - prefilled - answered
    cuts = statistics.quantiles(took, n=100)
    return {
        "probes": probes,
        "streams": streams,
        "seconds": round(seconds, 2),
        "p50_ms": round(1e3 * cuts[49], 2),
        "p99_ms": round(1e3 * cuts[98], 2),
        "max_ms": round(1e3 * max(took), 2),
        # A generation of the load that is between its prefill and its answer at either end.
        "prefills_beyond_the_loads": max(0, caused - streams),
    }


def where(info: dict[str, Any]) -> dict[str, Any]:
    """On what, with what and when it was measured."""
    provenance = info["spec_hardening"]["provenance"]
    return {
        "date": date.today().isoformat(),
        "cpu_cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "pair": "SmolLM2-135M-Instruct and its draft",
        "sglang": f"{provenance['version']}+spec.{provenance['spec']}",
        "patch_set": provenance["patch_set"][:12],
        "command": f"benchmark/health_probes.py {' '.join(sys.argv[1:])}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probes", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("build/health_probes.json"))
    given = parser.parse_args()
    pair = embedded_pair()
    launch = Launch(pair.target, Speculation(pair.draft), arguments=("--skip-server-warmup",))
    log = Path("build/health_probes.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with Server(launch, log) as server:
        found = measure(server.wait_ready(600), given.probes, given.streams)
        info = httpx.get(f"{server.url}/server_info", timeout=60).json()
    found["self_test"] = info["speculative_self_test"]
    found["where"] = where(info)
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
