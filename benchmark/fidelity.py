"""What per-position penalties cost: this tree against the same tree without them, in turn.

    python benchmark/fidelity.py [--batch 1 --batch 8] [--rounds 7] [--tokens 96]
                                 [--backend triton] [--seconds 240]
                                 [--output benchmark/results/fidelity.json]

Starts two servers with the embedded pair: one from this tree ("now"), one from a copy with the
patches of PATCHES taken out ("before"), which counts penalties once a step. In every round each
server answers the same batch once without penalties and once with them; which comes first
alternates. Penalties change what is said, and with it how much is accepted, so besides tokens per
second there is the time of a verify step, which is what the code can cost. After --seconds no
round is begun; the file keeps those that are whole and says under "partial" what is missing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_spec import host, process
from sglang_spec.bench import mode, output
from sglang_spec.client import Client
from sglang_spec.models import embedded_pair
from sglang_spec.server import Launch, Server, Speculation
from vendoring.layout import Layout
from vendoring.series import patch_set_hash, read_series
from vendoring.undo import undone

ROOT = Path(__file__).resolve().parents[1]
PATCHES = (  # the last one first
    "penalties-with-overlap",
    "penalties-after-retraction",
    "min-p-with-seed",
    "processors-by-position",
    "filters-in-verify",
    "penalties-by-position",
)
PROMPT = [1, 9690, 198, 2683, 359, 253]
PENALTIES: dict[str, dict[str, Any]] = {
    "none": {},
    "all": {
        "frequency_penalty": 0.25,
        "presence_penalty": 0.25,
        "repetition_penalty": 1.05,
        "min_new_tokens": 8,
    },
}


@dataclass(frozen=True)
class Measured:
    """One batch: wall seconds, tokens put out, verify steps of its slowest request."""

    seconds: float
    tokens: int
    steps: int


def tree_before(under: Path) -> Path:
    """A folder to put first on PYTHONPATH: the sglang that is found there without PATCHES."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, under / "sglang", symlinks=True)
    patches = [ROOT / "patches" / f"{slug}.patch" for slug in PATCHES]
    for name, text in undone(patches, under / "sglang").items():
        (under / "sglang" / name).write_text(text)
    return under


def measure(client: Client, batch: int, tokens: int, penalties: str) -> Measured:
    prompts = [[*PROMPT, 300 + row] for row in range(batch)]
    answers = client.generate_batch(prompts, tokens, ignore_eos=True, **PENALTIES[penalties])
    return Measured(
        answers[0].seconds,
        sum(len(answer.tokens) for answer in answers),
        max(answer.cycles for answer in answers),
    )


def rounds(
    clients: dict[str, Client], batch: int, tokens: int, count: int, end: float = math.inf
) -> dict[str, Any]:
    """Figures of one batch size, by tree and penalties; of the rounds begun before `end`, which is
    on the clock of `time.monotonic`. Nothing, if there was none."""
    seen: dict[tuple[str, str], list[Measured]] = {}
    for number in range(count + 1):
        if time.monotonic() >= end:
            break
        for penalties in PENALTIES:
            for tree in sorted(clients, reverse=bool(number % 2)):
                found = measure(clients[tree], batch, tokens, penalties)
                if number > 0:  # the first round warms up
                    seen.setdefault((tree, penalties), []).append(found)
    if not seen:
        return {}
    figures: dict[str, Any] = {"rounds": len(seen["now", "none"])}
    for (tree, penalties), each in seen.items():
        steps = [1e3 * one.seconds / one.steps for one in each]
        figures[f"{tree}, penalties {penalties}"] = {
            "tok_s": round(statistics.median(one.tokens / one.seconds for one in each), 2),
            "ms_per_step": round(statistics.median(steps), 3),
            "ms_per_step_all": [round(value, 3) for value in sorted(steps)],
            "accept_length": round(each[0].tokens / batch / each[0].steps, 2),
        }
    for penalties in PENALTIES:
        pairs = zip(seen["before", penalties], seen["now", penalties], strict=True)
        ratios = [(a.seconds / a.steps) / (b.seconds / b.steps) for a, b in pairs]
        figures[f"speed of a step, now / before, penalties {penalties}"] = round(
            statistics.median(ratios), 4
        )
    pairs = zip(seen["now", "none"], seen["now", "all"], strict=True)
    figures["speed of a step, penalties all / none, now"] = round(
        statistics.median((a.seconds / a.steps) / (b.seconds / b.steps) for a, b in pairs), 4
    )
    return figures


def missing(batches: dict[str, Any], sizes: list[int], count: int) -> str | None:
    """What the end of the time left out; None if nothing."""
    had = {size: batches.get(str(size), {}).get("rounds", 0) for size in sizes}
    short = [
        f"{had[size]} of {count} rounds of batch {size}" for size in sizes if had[size] < count
    ]
    return f"its time was over: {', '.join(short)}" if short else None


def provenance() -> dict[str, Any]:
    import torch

    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    on_gpu = host.device() == "cuda"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.strip(),
        "patch_set": patch_set_hash(read_series(Layout(ROOT)))[:12],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} cores",
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--backend", help="attention backend, on a GPU (default: the server's own)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no round later")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmark/results/fidelity.json")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    sizes = list(dict.fromkeys(given.batch or [1, 8]))
    pair = embedded_pair()
    flags = ["--skip-server-warmup", "--skip-speculative-self-test"]
    if host.device() == "cuda":
        # Each server counts what the other took as used, so the cache's size is given instead.
        flags += ["--mem-fraction-static", mode.SHARED_FRACTION, "--max-total-tokens", "65536"]
        flags += ["--max-running-requests", "64", "--cuda-graph-max-bs-decode", "64"]
        flags += ["--attention-backend", given.backend] if given.backend else []
    logs = ROOT / "build/logs"
    logs.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"provenance": provenance(), "tokens": given.tokens}
    process.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    with tempfile.TemporaryDirectory() as scratch:
        rest = os.environ.get("PYTHONPATH", "")
        trees = {"now": str(ROOT / "python"), "before": str(tree_before(Path(scratch)))}
        launches = {
            name: Launch(
                pair.target,
                Speculation(pair.draft),
                arguments=flags,
                environment={"PYTHONPATH": f"{tree}:{rest}"},
            )
            for name, tree in trees.items()
        }
        with (
            Server(launches["before"], logs / "fidelity-before.log") as before,
            Server(launches["now"], logs / "fidelity-now.log") as now,
        ):
            servers = {"before": before, "now": now}
            limit = min(600.0, given.seconds)
            clients = {name: Client(one.wait_ready(limit).url) for name, one in servers.items()}
            record |= {"partial": "it is running, or was killed", "batches": {}}
            for batch in sizes:
                found = rounds(clients, batch, given.tokens, given.rounds, end)
                if found:
                    record["batches"][str(batch)] = found
                if batch == sizes[-1]:
                    record["partial"] = missing(record["batches"], sizes, given.rounds)
                output.replace(given.output, json.dumps(record, indent=1) + "\n")
    if record["partial"]:
        print(f"fidelity: partial: {record['partial']}", file=sys.stderr)
    print(json.dumps(record["batches"], indent=1))


if __name__ == "__main__":
    main()
