"""What speculation costs in prefix reuse: conversations over pools that are roomy, just enough, and
too small.

    PYTHONPATH=test:python python benchmark/kv.py [--trees plain,patched] [--output FILE]

For each page size, shape of speculation and pool, a server without speculation and one with it are
asked the same 64 conversations; `reuse_off` and `reuse_on` are the share of later prompts that was
cached. "patched" is this tree; "plain" is this tree without the patches of PATCHES, which on a CPU
is as near to plain SGLang as can be run. Tokens have to be equal everywhere. Also kept:
retractions, accept length, and the capacity that the servers tell of. The tiny pair accepts a draft
in half of all cases. benchmark/results/kv.json is the stored result.

Pools that are too small (TOO_SMALL, a share of what all conversations hold) are asked one request
at a time, so that what is forgotten does not depend on which requests meet. `reuse_on_with` is the
reuse in a pool with `slots_more`: those of a verify, and one for each conversation but one, since
all begin with the same token and cannot share its slot where the next token differs. `of_memory`
is the capacity of pools that are sized by memory, as `doctor kv` foretells it and as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from kit import kv_budget
from kit.preloaded import Zygote
from kit.servers import ServerPool, spawner
from sglang_spec.bench.turns import Plan, Turn, play, reuse
from sglang_spec.models import tiny_pair
from sglang_spec.models.tiny import TINY_HALF
from sglang_spec.server import Launch, Server, Speculation

ROOT = Path(__file__).resolve().parents[1]
PATCHES = (  # the last one first
    "radix-counts-pairs",
    "evict-what-a-decode-takes",
    "room-for-the-last-cycle",
    "reserve-one-cycle",
)
STRICT = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}


@dataclass(frozen=True)
class Case:
    """A pool and how the server speculates.

    Attributes:
        room: slots beyond what all conversations hold at their end, on average.
    """

    page: int
    speculation: tuple[int, int, int]
    room: int


CASES = (
    Case(1, (3, 1, 4), 4000),
    Case(1, (3, 1, 4), 0),
    Case(1, (4, 4, 16), 0),
    Case(16, (3, 1, 4), 4000),
    Case(16, (3, 1, 4), 600),
)


TOO_SMALL = (0.96, 0.85)
ALONE = Plan(streams=16, turns=3, opening=48, said=8, answered=9, at_once=1)


@dataclass(frozen=True)
class Found:
    """One server's answers."""

    turns: list[Turn]
    retracted: int
    info: dict[str, Any]

    @property
    def accept_length(self) -> float:
        """Tokens a verify gave, on average over all requests."""
        counts = [turn.answer.correct_drafts for turn in self.turns]
        cycles = sum(sum(count) for count in counts)
        tokens = sum(n * (i + 1) for count in counts for i, n in enumerate(count))
        return round(tokens / cycles, 3) if cycles else 0.0


def without_patches(folder: Path) -> Path:
    """A copy of this tree with PATCHES taken out, for the front of PYTHONPATH."""
    shutil.copytree(ROOT / "python/sglang", folder / "sglang", symlinks=True)
    for name in ("sglang_spec", "vendoring"):
        (folder / name).symlink_to(ROOT / "python" / name)
    for slug in PATCHES:
        patch = ROOT / "patches" / f"{slug}.patch"
        command = ["git", "apply", "-R", "--unsafe-paths", f"--directory={folder / 'sglang'}"]
        subprocess.run([*command, str(patch)], check=True, cwd=folder)
    return folder


def ask(zygote: Zygote, case: Case, speculates: bool, plan: Plan, log: Path) -> Found:
    pair = tiny_pair(TINY_HALF)
    flags = ["--max-total-tokens", str(plan.tokens + case.room), "--page-size", str(case.page)]
    flags += ["--max-running-requests", "32"]
    flags += ["--skip-speculative-self-test"] if speculates else []
    speculation = Speculation(pair.draft, *case.speculation) if speculates else None
    launch = Launch(pair.target, speculation, arguments=flags, environment=STRICT)
    with Server(launch, log, spawn=spawner(zygote)) as server:
        server.wait_ready()
        turns = play(server.url, plan)
        info = httpx.get(f"{server.url}/server_info", timeout=60).json()
    retracted = re.findall(r"#retracted_reqs: (\d+)", log.read_text(errors="replace"))
    return Found(turns, sum(map(int, retracted)), info)


def measure(zygote: Zygote, plan: Plan, scratch: Path) -> list[dict[str, Any]]:
    """All cases on one tree; a server without speculation is asked once for each pool."""
    off: dict[tuple[int, int], Found] = {}
    rows = []
    for case in CASES:
        pool = (case.page, case.room)
        if pool not in off:
            off[pool] = ask(zygote, case, False, plan, scratch / f"off-{pool}.log")
        on = ask(zygote, case, True, plan, scratch / f"on-{case}.log")
        equal = [t.answer.tokens for t in on.turns] == [t.answer.tokens for t in off[pool].turns]
        if not equal:
            raise SystemExit(f"{case}: other tokens than without speculation")
        (state,) = on.info["internal_states"]
        row = {
            **asdict(case),
            "pool": plan.tokens + case.room,
            "reuse_on": round(reuse(on.turns), 4),
            "reuse_off": round(reuse(off[pool].turns), 4),
            "retracted_on": on.retracted,
            "retracted_off": off[pool].retracted,
            "accept_length": on.accept_length,
            "capacity": state.get("kv_cost"),
        }
        rows.append(row)
        print(json.dumps({key: value for key, value in row.items() if key != "capacity"}))
    return rows


def too_small(zygote: Zygote, scratch: Path) -> list[dict[str, Any]]:
    """Pages of a token and a chain: with one request at a time nothing is left to chance."""
    speculation = (3, 1, 4)
    more = speculation[2] + ALONE.streams - 1
    rows = []
    for share in TOO_SMALL:
        pool = int(ALONE.tokens * share)
        found = {}
        for name, slots in (("off", pool), ("on", pool), ("on_with", pool + more)):
            case = Case(1, speculation, slots - ALONE.tokens)
            log = scratch / f"small-{pool}-{name}.log"
            found[name] = ask(zygote, case, name != "off", ALONE, log)
        tokens = [[turn.answer.tokens for turn in one.turns] for one in found.values()]
        if tokens[1:] != tokens[:-1]:
            raise SystemExit(f"a pool of {pool}: other tokens than without speculation")
        row: dict[str, Any] = {"pool": pool, "of_all": share, "slots_more": more}
        row |= {f"reuse_{name}": round(reuse(one.turns), 4) for name, one in found.items()}
        rows.append(row)
        print(json.dumps(row))
    return rows


def of_memory(servers: ServerPool, scratch: Path) -> list[dict[str, Any]]:
    rows = []
    for page in (1, 16):
        pair = tiny_pair()
        foretold = kv_budget.foretold(pair, kv_budget.of_weights(pair), page)
        found = kv_budget.sized(servers, pair, page, scratch)
        row = {
            "page": page,
            "kv_gb": round(foretold["gigabytes"], 4),
            "tokens_foretold": foretold["tokens"],
            "tokens": found.tokens,
        }
        rows.append(row)
        print(json.dumps(row))
    return rows


def of_tree(variant: str, plan: Plan) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        before = os.environ.get("PYTHONPATH", "")
        if variant == "plain":
            kept = [p for p in before.split(":") if p and not (Path(p) / "sglang").is_dir()]
            tree = without_patches(Path(scratch))
            os.environ["PYTHONPATH"] = ":".join([str(tree), *kept])
        servers = ServerPool()
        zygote = servers.zygote
        assert zygote is not None, "this measures on the CPU"
        try:
            memory = of_memory(servers, Path(scratch))
            rows = measure(zygote, plan, Path(scratch))
            for row in rows:
                if variant == "plain" and row["capacity"]:
                    del row["capacity"]["reserve"]  # tells of what was taken out
            small = too_small(zygote, Path(scratch))
            return {"cases": rows, "too_small": small, "of_memory": memory}
        finally:
            servers.close()
            os.environ["PYTHONPATH"] = before


def where() -> dict[str, Any]:
    """On what, with what and when it was measured."""
    from sglang_spec.hardening import provenance  # type: ignore[attr-defined]

    found = provenance.read()
    return {
        "date": date.today().isoformat(),
        "cpu_cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "pair": "the tiny pair, its draft accepted in half of all cases",
        "sglang": found.version,
        "patch_set": (found.patch_set or "")[:12],
        "plain": f"this tree without {', '.join(reversed(PATCHES))}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", default="plain,patched")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=24)
    parser.add_argument("--output", type=Path, default=ROOT / "build/kv.json")
    given = parser.parse_args()
    plan = Plan(turns=given.turns, answered=18, opening=96, said=12, at_once=given.at_once)
    told: dict[str, Any] = {"where": where(), "plan": asdict(plan)}
    for variant in given.trees.split(","):
        told[variant] = of_tree(variant, plan)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
