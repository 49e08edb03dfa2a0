"""Run upstream's kits on this host: `python -m upstream_kits --output upstream_kits.json`.

For each variant (patched, plain, and plain without speculation) it starts the servers that the kits
need and asks each kit. A variant whose server does not start is recorded with the end of its log.
Exit status 1: a test that passes on the plain tree and fails on the patched one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from kit.servers import LOGS, ServerPool
from sglang_spec import host, process
from sglang_spec.models import Pair, embedded_pair
from sglang_spec.server import Server, ServerError

from . import compare, page, record, servers
from .kits import KITS, Kit
from .servers import PATCHED, PLAIN, SETUPS, VARIANTS

# What plain upstream says where it cannot start with EAGLE3 on a CPU without AMX.
NO_START = "does not start: "


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="upstream_kits", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="part of a kit's name")
    parser.add_argument("--test", action="append", default=[], help="part of a test's name")
    parser.add_argument(
        "--due", action="store_true", help="only what --output has not of this code"
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs of each test; finds flaky ones")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="default: all")
    parser.add_argument("--backend", default="flashinfer", help="attention backend on a GPU")
    parser.add_argument("--limit", type=int, default=300, help="seconds for one test")
    parser.add_argument("--seconds", type=float, default=1e6, help="in all; kits left are not run")
    parser.add_argument("--output", type=Path, help="add the results to this record")
    parser.add_argument("--page", type=Path, help="and write the table of the whole record here")
    return parser.parse_args(words)


class Run:
    """One variant's kits; its results by kit."""

    def __init__(self, options: argparse.Namespace, pair: Pair, variant: str, device: str) -> None:
        self.options, self.pair, self.variant, self.device = options, pair, variant, device
        self.backend = "intel_amx" if device == "cpu" else options.backend
        self._end = time.monotonic() + options.seconds
        self.known = _known(options, device, variant)

    @property
    def over(self) -> bool:
        """Whether the time that was given is over; nothing is started any more."""
        return time.monotonic() > self._end

    def wants(self, kit: Kit) -> bool:
        """Whether the record has not all of it."""
        return kit.key not in self.known or bool(self.known[kit.key])

    def kits(self, kits: Sequence[Kit]) -> dict[str, dict[str, Any]]:
        """Those of one server after the other; then those that start their own."""
        found: dict[str, dict[str, Any]] = {}
        pool = ServerPool()
        why = ""
        try:
            for name in SETUPS:
                asked = [kit for kit in kits if kit.server == name and not kit.launches]
                if self.over:
                    break
                if asked and not why:
                    results, why = self._served(pool, name, asked)
                    found |= results
                elif asked:  # the first server did not start, and neither would the others
                    found |= {kit.key: record.not_run(why) for kit in asked}
        finally:
            pool.close()
        return found

    def _served(
        self, pool: ServerPool, name: str, kits: Sequence[Kit]
    ) -> tuple[dict[str, Any], str]:
        """Their results; or why the server did not start."""
        launch = servers.launch(self.pair, SETUPS[name], self.variant, self.options.backend)
        label = f"kits-{self.variant.replace(' ', '-')}-{name}"
        if self.variant == PATCHED:
            server = pool.start(launch, label)
        else:  # another tree than the one that was imported here
            server = Server(launch, LOGS / f"{label}.log")
        try:
            server.wait_ready(420)
        except ServerError as error:
            said = NO_START + reason(str(error))
            server.stop()
            return {kit.key: record.not_run(said) for kit in kits}, said
        with server:
            return self.ask(kits, server.url, server.pid), ""

    def ask(self, kits: Sequence[Kit], url: str = "", pid: int = 0) -> dict[str, dict[str, Any]]:
        """Kits in one process of this variant's tree."""
        job = {
            "url": url,
            "pid": pid,
            "limit": self.options.limit,
            "repeat": self.options.repeat,
            "tests": self.options.test,
            "fixture": servers.fixture(self.pair, self.backend),
            "kits": [
                {
                    "key": kit.key,
                    "module": kit.module,
                    "name": kit.name,
                    "attributes": dict(kit.attributes),
                    "launches": kit.launches,
                    "left_out": [*kit.left_out(self.device), *self.known.get(kit.key, ())],
                }
                for kit in kits
            ],
        }
        log = LOGS / f"kits-{self.variant.replace(' ', '-')}-{kits[0].name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, log.open("w") as out:
            given, results = Path(folder) / "job.json", Path(folder) / "results.jsonl"
            given.write_text(json.dumps(job))
            results.touch()
            left = max(1.0, self._end - time.monotonic())
            code = finish(
                [sys.executable, "-m", "upstream_kits.client", str(given), str(results)],
                {**host.engine_environment(), "PYTHONPATH": servers.path_of(self.variant)},
                out,
                left,
            )
            lines = [json.loads(line) for line in results.read_text().splitlines()]
        print(f"{self.variant}: {len(lines)} tests of {len(kits)} kits", flush=True)
        found = {}
        for kit in kits:
            own = [line for line in lines if line["kit"] == kit.key]
            began = bool(own) and own[-1] is not lines[-1]  # the next kit
            whole = (code is not None or began) and not self.options.test
            if own or whole:  # else the time was over, and what an earlier run said of it stays
                entry = record.entry(own, code or 0, kit.left_out(self.device) if whole else {})
                rest = {"rest": True} if kit.key in self.known else {}
                found[kit.key] = {**entry, **(rest if whole else {"part": True})}
        return found


def finish(
    command: Sequence[str], environment: dict[str, str], out: IO[str], seconds: float
) -> int | None:
    """The exit code of the command, or None where it had to be ended after so many seconds."""
    try:
        return subprocess.run(
            command,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=seconds,
            preexec_fn=process.die_with_parent,
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def reason(text: str) -> str:
    """The line of a log's end that says what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line]
    return (telling or lines or ["no log"])[-1][:300]


def _known(options: argparse.Namespace, device: str, variant: str) -> dict[str, set[str]]:
    """What need not be run, with --due."""
    if not options.due:
        return {}
    return record.known(record.read(options.output), device, variant, servers.code(variant))


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    device = "cpu" if host.device() == "cpu" else "gpu"
    chosen = [kit for kit in KITS if not options.only or any(o in kit.key for o in options.only)]
    run_here = [kit for kit in chosen if not kit.why_not(device)]
    variants = options.variant or list(VARIANTS)
    pair = embedded_pair()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    started = time.monotonic()
    runs = {variant: Run(options, pair, variant, device) for variant in variants}
    for variant in runs:
        servers.path_of(variant)  # unpacked once, before several ask for it
    asked = {name: [kit for kit in run_here if run.wants(kit)] for name, run in runs.items()}
    at_once = 1 if device == "cpu" else len(runs)
    with ThreadPoolExecutor(at_once) as pool:
        done = list(pool.map(lambda variant: runs[variant].kits(asked[variant]), runs))
    found = dict(zip(runs, done, strict=True))
    for variant in (PATCHED, PLAIN):  # one after the other: their fixture takes the whole GPU
        launching = [kit for kit in asked.get(variant, ()) if kit.launches]
        if launching and not runs[variant].over:
            found[variant] |= runs[variant].ask(launching)
    content = record.content(chosen, device, found, options, time.monotonic() - started)
    for line in record.lines(content, device):
        print(line)
    if options.output:
        content = record.write(options.output, content)
        if options.page:
            page.write(options.page, content)
    worse = compare.worse(content, device)
    print(compare.verdict(content, device))
    for line in worse:
        print(f"worse than plain: {line}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
