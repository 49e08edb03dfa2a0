"""Which faults are tried: stage x kind x front end x tensor-parallel size, and what must follow.

`pairwise` is small: each pair of phase, kind, front end and size occurs, and every stage at least
once. `whole` is everything. Run as a program it writes the table of docs/faults.md:

    python -m kit.fault_matrix --results build/faults.jsonl [--whole] --write docs/faults.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from sglang.srt.spec_hardening import stages
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny.plan import TINY_HALF

from .fault_run import Outcome, Plan, run_engine, run_server
from .preloaded import Zygote

PHASES = {
    "set-up": ("arguments", "parallel"),
    "models": ("target_model", "draft_model", "draft_arguments", "draft_controller"),
    "pools": ("lm_head", "target_pool", "draft_pool", "token_map"),
    "backends": (
        "draft_attention",
        "target_graphs",
        "adaptive_states",
        "draft_graphs",
        "target_attention",
    ),
    "end": ("invariants", "scheduler", "self_test"),
    "cycle": ("verify", "draft", "draft_extend", "prefill"),
    "serving": ("serving_verify", "serving_draft_extend", "serving_draft"),
}
FRONTS = ("server", "engine")
SIZES = (1, 2)
VERIFY_BOUND = ("--speculative-verify-timeout", "2")
# What ends a rank that hangs where nobody asks for its health: an Engine's.
WATCHDOG = ("--watchdog-timeout", "6")
ADAPTIVE = ("--speculative-adaptive", "--disable-cuda-graph")


@dataclass(frozen=True)
class Row:
    stage: str
    kind: str
    front: str
    tp: int
    rank: int = 0

    @property
    def id(self) -> str:
        return f"{self.stage}-{self.kind}-{self.front}-tp{self.tp}"

    @property
    def serving(self) -> bool:
        return self.stage.startswith("serving_")

    @property
    def plan(self) -> Plan:
        hung = self.stage if self.stage in stages.BY_NAME else "self_test"
        hung = "self_test" if hung in {stage.name for stage in stages.CYCLE} else hung
        limit = "12" if hung == "self_test" else "4"
        return Plan(
            f"{self.stage}:{self.kind}:{self.rank}",
            self.tp,
            (*VERIFY_BOUND, *WATCHDOG, *(ADAPTIVE if self.stage == "adaptive_states" else ())),
            {"SGLANG_SPEC_STAGE_TIMEOUT": f"{hung}={limit}"} if self.kind == "hang" else {},
        )


def pairwise() -> list[Row]:
    """Every pair of (phase, kind, front end, size) once, every stage at least once."""
    rows = []
    for p, phase in enumerate(PHASES.values()):
        for k, kind in enumerate(stages.CONTROL_KINDS):
            tp = SIZES[(p + k // 2) % 2]
            rows.append(Row(phase[k % len(phase)], kind, FRONTS[(p + k) % 2], tp, tp - 1))
    left = {stage for phase in PHASES.values() for stage in phase} - {row.stage for row in rows}
    rows += [Row(stage, "raise", "server", 1) for stage in sorted(left)]
    return [*rows, *(Row(stage, kind, "server", 1) for stage, kind in SOME_TENSORS)]


# A damaged tensor that a guard has to find: nothing throws by itself at once.
SOME_TENSORS = (("draft_model", "nan"), ("token_map", "shape"), ("draft_extend", "nan"))


def whole() -> list[Row]:
    rows = []
    for name in (stage for phase in PHASES.values() for stage in phase):
        stage = stages.BY_NAME.get(name)
        kinds = stages.CONTROL_KINDS + (stage.tensor_kinds if stage else ("shape",))
        rows += [
            Row(name, kind, front, tp, tp - 1) for kind in kinds for front in FRONTS for tp in SIZES
        ]
    return rows


def run(row: Row, zygote: Zygote, pair: Pair) -> Outcome:
    if (row.stage, row.kind) == ("token_map", "shape"):
        pair = tiny_pair(TINY_HALF)  # the one with a map
    if row.front == "server":
        return run_server(zygote, pair, row.plan)
    return run_engine(zygote, pair, row.plan, thread=len(row.stage) % 2 == 1)


def faults_of(row: Row, outcome: Outcome) -> list[str]:
    """What is wrong with how the run ended; empty is what must hold."""
    wrong = [f"left behind: {', '.join(outcome.left)}"] if outcome.left else []
    named = (outcome.line, *outcome.reds) if row.serving else (outcome.line,)
    if row.front == "server":
        if not row.serving and outcome.greens:
            wrong.append(f"was called ready: {outcome.greens[0]}")
        red = row.serving and row.kind == "hang" and outcome.code is None and bool(outcome.reds)
        if outcome.code in (None, 0) and not red:
            wrong.append(f"ended with {outcome.code}")
    else:
        events = [event["event"] for event in outcome.events]
        wanted = ["ready", "raised", "alive"] if row.serving else ["raised", "alive"]
        if events != wanted or outcome.code != 0:
            wrong.append(f"events {events}, exit code {outcome.code}")
        raised = [event["kind"] for event in outcome.events if event["event"] == "raised"]
        if raised != ["EngineDeadError"]:
            wrong.append(f"raised {raised}")
    if not any(_names(row, line) for line in named):
        wrong.append(f"the stage is not named in: {outcome.line[:300]}")
    return wrong


def _names(row: Row, line: str) -> bool:
    """Whether the line names rank and stage. A tensor fault may show in a later stage; of ranks
    that make no progress together all are named."""
    if f"rank TP{row.rank}" not in line and row.kind in stages.CONTROL_KINDS:
        return False
    if row.kind in stages.TENSOR_KINDS:
        return "stage " in line
    name = row.stage.removeprefix("serving_")
    part = name in {stage.name for stage in stages.CYCLE}
    return f"({name})" in line if part else f"stage {name}" in line


@dataclass(frozen=True)
class Record:
    """One line of the results file."""

    stage: str
    kind: str
    front: str
    tp: int
    seconds: float
    ended: str
    line: str
    wrong: tuple[str, ...]


def record(row: Row, outcome: Outcome) -> Record:
    if row.front == "engine":
        ended = "EngineDeadError" if outcome.line else "?"
    elif outcome.code is None:
        ended = "health 503" if outcome.reds else "running"
    else:
        ended = f"exit code {outcome.code}"
    line = outcome.reds[-1] if ended == "health 503" else outcome.line
    wrong = tuple(faults_of(row, outcome))
    return Record(row.stage, row.kind, row.front, row.tp, outcome.seconds, ended, line, wrong)


def read(path: Path) -> Iterator[Record]:
    if path.exists():
        for line in path.read_text().splitlines():
            fields = json.loads(line)
            yield Record(**{**fields, "wrong": tuple(fields["wrong"])})


def table(records: list[Record], day: str) -> str:
    """docs/faults.md."""
    bad = [one for one in records if one.wrong]
    stage_count = len({one.stage for one in records})
    head = f"""# Faults and what becomes of them

Written by `python -m kit.fault_matrix` (in `test/`) on {day}: {len(records)} runs of real
servers and Engines with the tiny pair on the CPU, {stage_count} stages, {len(bad)} runs that did
not end as they must. A fault is set by `SGLANG_SPEC_FAULT=stage:kind:rank`; `serving_` stages fail
after the server was called ready, on the first request that decodes. "Ends" is what the caller
sees: a server's exit code, a 503 with the reason, or the exception of an Engine, whose process goes
on. Seconds are wall time from the launch.

No run left a process, a port or shared memory, and no probe was green before a fault of
construction or of the self-test, except where the table says WRONG.

| stage | kind | front end | TP | ends | seconds | last line |
|---|---|---|---|---|---|---|
"""
    rows = [
        f"| {one.stage} | {one.kind} | {one.front} | {one.tp} | {one.ended} | {one.seconds:.0f} "
        f"| {_cell(one)} |"
        for one in records
    ]
    return head + "\n".join(rows) + "\n"


def _cell(one: Record) -> str:
    text = "; ".join((*(f"WRONG: {wrong}" for wrong in one.wrong), one.line))
    text = text.partition("EngineDeadError: ")[2] or text
    return text.partition("; full traceback")[0].replace("|", "\\|")[:220]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--results", type=Path, required=True, help="one JSON object a run; resumed"
    )
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--tp", type=int, help="only this size")
    parser.add_argument("--write", type=Path, help="the table, from all results")
    given = parser.parse_args()
    rows = [row for row in (whole() if given.whole else pairwise()) if given.tp in (None, row.tp)]
    done = {(one.stage, one.kind, one.front, one.tp) for one in read(given.results)}
    todo = [row for row in rows if (row.stage, row.kind, row.front, row.tp) not in done]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    zygote, pair = Zygote(), tiny_pair()
    try:
        for row in todo:
            found = record(row, run(row, zygote, pair))
            with given.results.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
            print(row.id, found.ended, f"{found.seconds:.0f} s", *found.wrong, flush=True)
    finally:
        zygote.close()
    if given.write is not None:
        given.write.write_text(table(list(read(given.results)), date.today().isoformat()))


if __name__ == "__main__":
    main()
