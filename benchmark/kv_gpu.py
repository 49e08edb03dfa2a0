"""What `benchmark/kv.py` asks, on a GPU: under overlap, with graphs, and of plain SGLang itself.

    PYTHONPATH=test:python python benchmark/kv_gpu.py [--output FILE]
    PYTHONPATH=test:python python benchmark/kv_gpu.py --output FILE --into benchmark/results/kv.json

64 conversations, 24 at once, over pools that hold them all and what this tree reserves for 24
running requests, and no more: what reserves more forgets. Without speculation the pool is the
largest of its page size. "plain" is the same package without any patch. All servers of a tree start
together and are asked one after the other. Tokens have to be equal with and without speculation, or
the row says so. The result is written after each tree; a server that does not start or ends is said
in its row. `--into` adds a result, that of --output, to the stored one and measures nothing. Exit
status 1: a row of this tree failed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
from kit import gpu_record
from kit.servers import LOGS
from kit.upstream import taken_back
from kv import STRICT, Case, Found, where
from sglang_spec import host
from sglang_spec.bench.turns import Plan, play, reuse
from sglang_spec.client import Client
from sglang_spec.hardening.kv.reserve import Cycle, most
from sglang_spec.models import tiny_pair
from sglang_spec.models.tiny import TINY_HALF
from sglang_spec.server import Launch, Server, ServerError, Speculation, stop_all

ROOT = Path(__file__).resolve().parents[1]
PLAN = Plan(turns=3, answered=18, opening=96, said=12, at_once=24)
SHAPES = (
    (1, (3, 1, 4)),
    (1, (4, 4, 16)),
    (16, (3, 1, 4)),
    (64, (3, 1, 4)),
    (64, (5, 4, 16)),
)


def case(page: int, speculation: tuple[int, int, int]) -> Case:
    """With room for what running requests hold, the end of each last page, and branches."""
    steps, topk, tokens = speculation
    held = most(Cycle(steps, topk, tokens, page, 1))
    return Case(page, speculation, PLAN.at_once * held + PLAN.streams * page)


def launch(case: Case, speculates: bool, environment: Mapping[str, str]) -> Launch:
    pair = tiny_pair(TINY_HALF)
    pool = (PLAN.tokens + case.room) // case.page * case.page
    flags = ["--max-total-tokens", str(pool), "--page-size", str(case.page)]
    flags += ["--max-running-requests", "32", "--context-length", "2048", "--skip-server-warmup"]
    if host.device() != "cpu":
        flags += ["--attention-backend", "triton", "--mem-fraction-static", "0.96"]
        flags += ["--cuda-graph-max-bs-decode", "32", "--disable-prefill-cuda-graph"]
    speculation = Speculation(pair.draft, *case.speculation) if speculates else None
    return Launch(pair.target, speculation, arguments=flags, environment=environment)


def ask(server: Server) -> Found:
    """Raises ServerError where it does not get ready."""
    server.wait_ready(300)
    client = Client(server.url)
    client.flush_cache()
    turns = play(server.url, PLAN)
    info = client.get("/server_info").json()
    client.close()
    retracted = sum(int(turn.answer.meta.get("num_retractions") or 0) for turn in turns)
    server.stop()
    return Found(turns, retracted, info)


def row(case: Case, on: Found, off: Found) -> dict[str, Any]:
    equal = [t.answer.tokens for t in on.turns] == [t.answer.tokens for t in off.turns]
    (state,) = on.info["internal_states"]
    return {
        **asdict(case),
        "tokens_equal": equal,
        "pool": on.info["max_total_num_tokens"],
        "reuse_on": round(reuse(on.turns), 4),
        "reuse_off": round(reuse(off.turns), 4),
        "retracted_on": on.retracted,
        "retracted_off": off.retracted,
        "accept_length": on.accept_length,
        "capacity": state.get("kv_cost"),
    }


def of_tree(variant: str, cases: list[Case]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch:
        environment = dict(STRICT)
        if variant == "plain":
            path = [str(taken_back(Path(scratch))), os.environ.get("PYTHONPATH", "")]
            environment = {"PYTHONPATH": os.pathsep.join(path)}
        alone = {one.page: one for one in reversed(cases)}
        pools = {page: max(c.room for c in cases if c.page == page) for page in alone}
        started: dict[Any, Server] = {}
        try:
            for page, one in alone.items():
                plain = replace(one, room=pools[page])
                log = LOGS / f"kv-{variant}-off-{page}.log"
                started[page] = Server(launch(plain, False, environment), log)
            for number, one in enumerate(cases):
                log = LOGS / f"kv-{variant}-on-{number}.log"
                started[one] = Server(launch(one, True, environment), log)
            found: dict[Any, Found | str] = {}
            for key, server in started.items():
                try:
                    found[key] = ask(server)
                except (ServerError, httpx.HTTPError, TimeoutError) as error:
                    found[key] = f"{error!r}"[-300:] + server.log_tail(12)[-1500:]
        finally:
            stop_all(started.values())
    rows = []
    for one in cases:
        on, off = found[one], found[one.page]
        if isinstance(on, Found) and isinstance(off, Found):
            rows.append(row(one, on, off))
        else:
            rows.append({**asdict(one), "failed": on if isinstance(on, str) else off})
        print(variant, json.dumps({k: v for k, v in rows[-1].items() if k != "capacity"}))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", default="patched,plain")
    parser.add_argument("--cases", type=int, default=len(SHAPES), help="only the first so many")
    parser.add_argument("--output", type=Path, default=ROOT / "build/kv-gpu.json")
    parser.add_argument("--into", type=Path, help="add --output to this record")
    given = parser.parse_args()
    if given.into:
        record = json.loads(given.into.read_text()) | {"gpu": json.loads(given.output.read_text())}
        given.into.write_text(json.dumps(record, indent=1) + "\n")
        return
    about = where() | {"plain": "without any patch", "gpus": gpu_record.gpus()}
    told: dict[str, Any] = {"where": about, "plan": asdict(PLAN)}
    for variant in given.trees.split(","):
        told[variant] = of_tree(variant, [case(*shape) for shape in SHAPES[: given.cases]])
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(told, indent=1) + "\n")
    if not all(one.get("tokens_equal") for one in told.get("patched", ())):
        raise SystemExit("a server with speculation failed, or gave other tokens than without")


if __name__ == "__main__":
    main()
