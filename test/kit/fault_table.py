"""Results of the fault matrix: one JSON object a line, and docs/faults.md made from them.

python -m kit.fault_table --results test/results/faults.jsonl --write docs/faults.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sglang.srt import spec_hardening
from sglang.srt.spec_hardening import provenance

FRONTS = ("server", "engine")
SIZES = (1, 2)
Cell = tuple[str, str, str, int]  # stage, kind, front end, tensor-parallel size


@dataclass(frozen=True)
class Record:
    """One run. `ended` is what the caller saw, `line` the last line or the exception's text,
    `wrong` what did not hold, `code` of which code (`code_hash`), `day` when (ISO date)."""

    stage: str
    kind: str
    front: str
    tp: int
    seconds: float
    ended: str
    line: str
    wrong: tuple[str, ...]
    day: str
    code: str

    @property
    def cell(self) -> Cell:
        return self.stage, self.kind, self.front, self.tp


def read(path: Path) -> list[Record]:
    """The last run of each cell, in the file's order; none if there is no such file."""
    found: dict[Cell, Record] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        fields = json.loads(line)
        record = Record(**{**fields, "wrong": tuple(fields["wrong"])})
        found[record.cell] = record
    return list(found.values())


def append(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def code_hash() -> str:
    """Of what is tested: the patch set and the project's modules in it, 12 hex digits."""
    digest = hashlib.sha256((provenance.read().patch_set or "").encode())
    for file in sorted(Path(spec_hardening.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def table(records: Iterable[Record], cells: list[Cell]) -> str:
    """docs/faults.md: what became of each of `cells` that was run, and which were not."""
    by_cell = {record.cell: record for record in records if record.cell in set(cells)}
    run = list(by_cell.values())
    missing = [cell for cell in cells if cell not in by_cell]
    bad = [record for record in run if record.wrong]
    pairs = list(dict.fromkeys((stage, kind) for stage, kind, _, _ in cells))
    columns = [(front, size) for front in FRONTS for size in SIZES]
    rows = []
    for stage, kind in pairs:
        ended = [_short(by_cell.get((stage, kind, *column))) for column in columns]
        said = next((by_cell[cell] for cell in _wide_first(stage, kind) if cell in by_cell), None)
        rows.append(f"| {stage} | {kind} | {' | '.join(ended)} | {_says(said)} |")
    return "\n".join([_head(run, cells, bad), *rows, *_tail(missing, bad), ""])


HEAD = """# Faults and what becomes of them

Written by `make faults` from `test/results/faults.jsonl`: {run} of {cells} cells, {stages}
stages, run on {days}; {held} ended as they must, {bad} did not. Real servers and Engines on a
CPU with 2 cores, the tiny pair, forked from a preloaded process, other work beside them.

- seconds from launch to end: median {median:.1f}, longest {longest:.1f}
- code (hash of the patch set and the modules): {codes}

A fault is set by `SGLANG_SPEC_FAULT=stage:kind:rank`, on the last rank. `serving_` stages fail
after the server was called ready, at the first request that decodes. The kinds `shape` and `nan`
are there where a stage has a tensor in hand. In a cell: a server's exit code, `503` (health says
why, the process stays), or `dead` (the Engine's caller got an `EngineDeadError` and went on), and
the seconds. A cell that is not WRONG left no process, port or shared memory, named rank and stage
(for `shape` and `nan` the stage that noticed), and, before a fault of construction or of the
self-test, no probe of `/health`, `/health_generate` or `/ready` was ever 200. The last column is
of a server, of two ranks where that was run.

| stage | kind | server, TP 1 | server, TP 2 | Engine, TP 1 | Engine, TP 2 | last line |
|---|---|---|---|---|---|---|"""


def _head(run: list[Record], cells: list[Cell], bad: list[Record]) -> str:
    seconds = [record.seconds for record in run] or [0.0]
    return HEAD.format(
        run=len(run),
        cells=len(cells),
        stages=len({record.stage for record in run}),
        days=", ".join(sorted({record.day for record in run})) or "no day",
        held=len(run) - len(bad),
        bad=len(bad),
        codes=_codes(run),
        median=statistics.median(seconds),
        longest=max(seconds),
    )


def _codes(run: list[Record]) -> str:
    counted = Counter(record.code for record in run)
    if len(counted) < 2:
        return "".join(counted) or "none"
    return ", ".join(f"{code} ({cells} cells)" for code, cells in counted.most_common())


def _tail(missing: list[Cell], bad: list[Record]) -> list[str]:
    lines = ["", "## Not run", ""]
    lines += [f"- {stage}:{kind}, {front}, TP {size}" for stage, kind, front, size in missing]
    lines += [] if missing else ["None: every cell was run."]
    if bad:
        lines += ["", "## Wrong", ""]
        lines += [
            f"- {one.stage}:{one.kind}, {one.front}, TP {one.tp}: {'; '.join(one.wrong)[:400]}"
            for one in bad
        ]
    return lines


def _wide_first(stage: str, kind: str) -> list[Cell]:
    return [(stage, kind, front, size) for front in FRONTS for size in reversed(SIZES)]


def _short(record: Record | None) -> str:
    if record is None:
        return "not run"
    ended = record.ended.replace("exit code", "exit").replace("health 503", "503")
    ended = ended.replace("EngineDeadError", "dead")
    return f"{'WRONG: ' if record.wrong else ''}{ended}, {record.seconds:.0f} s"


def _says(record: Record | None) -> str:
    if record is None:
        return ""
    _, rank, rest = record.line.partition("rank TP")
    return (rank + rest).partition("; full traceback")[0].replace("|", "\\|")[:200]


def main() -> None:
    from .fault_matrix import whole

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--write", type=Path, required=True)
    given = parser.parse_args()
    given.write.write_text(table(read(given.results), [row.cell for row in whole()]))


if __name__ == "__main__":
    main()
