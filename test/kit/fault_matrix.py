"""Which faults are tried: stage x kind x front end x tensor-parallel size, and what must follow.

`pairwise` is small: each pair of phase, kind, front end and size occurs, and every stage at least
once. `whole` is everything. Run as a program it runs what is not in the results yet, or, with
`--renew`, not with this code, in pieces if told to; `fault_table` makes docs/faults.md of them:

    python -m kit.fault_matrix --results test/results/faults.jsonl --renew [--seconds 600]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from sglang.srt.spec_hardening import stages
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny.plan import TINY_HALF

from .fault_run import Outcome, Plan, run_engine, run_server
from .fault_table import FRONTS, SIZES, Cell, Record, append, code_hash, keep_last, read
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
# Seconds after which a hang is one: of a stage, of the self-test, of a verify, and of a rank that
# hangs where nobody asks for its health (an Engine's).
STAGE_S, SELF_TEST_S, VERIFY_S, WATCHDOG_S = 4, 12, 2, 6
PATIENT = 8  # times as long
ADAPTIVE = ("--speculative-adaptive", "--disable-cuda-graph")


@dataclass(frozen=True)
class Row:
    stage: str
    kind: str
    front: str
    tp: int
    rank: int = 0
    patience: int = 1  # times the seconds after which a hang is one

    @property
    def id(self) -> str:
        return f"{self.stage}-{self.kind}-{self.front}-tp{self.tp}"

    @property
    def cell(self) -> Cell:
        return self.stage, self.kind, self.front, self.tp

    @property
    def serving(self) -> bool:
        return self.stage.startswith("serving_")

    @property
    def plan(self) -> Plan:
        hung = self.stage if self.stage in stages.BY_NAME else "self_test"
        hung = "self_test" if hung in {stage.name for stage in stages.CYCLE} else hung
        limit = self.patience * (SELF_TEST_S if hung == "self_test" else STAGE_S)
        bounds = (
            *("--speculative-verify-timeout", str(self.patience * VERIFY_S)),
            *("--watchdog-timeout", str(self.patience * WATCHDOG_S)),
        )
        hangs = self.kind == "hang"  # nothing else is waited for
        return Plan(
            f"{self.stage}:{self.kind}:{self.rank}",
            self.tp,
            (*(bounds if hangs else ()), *(ADAPTIVE if self.stage == "adaptive_states" else ())),
            {"SGLANG_SPEC_STAGE_TIMEOUT": f"{hung}={limit}"} if hangs else {},
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
    return [*rows, *(Row(stage, kind, "server", 1) for stage, kind in SOME_MORE)]


# A damaged tensor that a guard has to find: nothing throws by itself at once. And a verify that is
# broken behind a server that skips its warm-up.
SOME_MORE = (
    ("draft_model", "nan"),
    ("token_map", "shape"),
    ("draft_extend", "nan"),
    ("prefill", "nan"),
    ("verify", "raise"),
)


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
    """A hang for which the times may have been too short on a busy host is tried again."""
    outcome = _run(row, zygote, pair)
    if row.kind == "hang" and faults_of(row, outcome) and not outcome.left:
        outcome = _run(replace(row, patience=PATIENT), zygote, pair)
    return outcome


def _run(row: Row, zygote: Zygote, pair: Pair) -> Outcome:
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
    served = row.serving and row.front == "server"  # its watchdog holds the process that ended
    if served and row.kind == "kill" and "SIGKILL" not in outcome.line:
        wrong.append(f"the signal is not named in: {outcome.line[:300]}")
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


def record(row: Row, outcome: Outcome) -> Record:
    if row.front == "engine":
        ended = "EngineDeadError" if outcome.line else "?"
    elif outcome.code is None:
        ended = "health 503" if outcome.reds else "running"
    else:
        ended = f"exit code {outcome.code}"
    line = outcome.reds[-1] if ended == "health 503" else outcome.line
    wrong = tuple(faults_of(row, outcome))
    seconds, day = round(outcome.seconds, 2), date.today().isoformat()
    return Record(*row.cell, seconds, ended, line[:400], wrong, day, code_hash())


def todo(records: list[Record], code: str | None) -> list[Row]:
    """What was not run or went wrong, then what was not run with `code`."""
    done = {one.cell: one for one in records if not one.wrong}
    rows = [row for row in whole() if row.cell not in done]
    if code is not None:
        rows += [row for row in whole() if row.cell in done and done[row.cell].code != code]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="one JSON object a run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run later")
    parser.add_argument("--renew", action="store_true", help="also what was run with other code")
    given = parser.parse_args()
    rows = todo(read(given.results), code_hash() if given.renew else None)
    until = time.monotonic() + given.seconds
    zygote, pair = Zygote(), tiny_pair()
    try:
        for row in rows:
            if time.monotonic() > until:
                break
            found = record(row, run(row, zygote, pair))
            append(given.results, found)
            print(row.id, found.ended, f"{found.seconds:.0f} s", *found.wrong, flush=True)
    finally:
        zygote.close()
        keep_last(given.results)


if __name__ == "__main__":
    main()
