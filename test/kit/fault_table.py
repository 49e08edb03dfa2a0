"""Results of the fault matrix: one JSON object a line, and docs/faults.md made from them.

    python -m kit.fault_table --results test/results/faults.jsonl [--write docs/faults.md]

Says how many of the results are of the code that is here; without `--write` it exits with 1 if any
is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import sys
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


def keep_last(path: Path) -> None:
    """Drop every run that a later one of its cell has replaced."""
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in read(path)))


def code_hash() -> str:
    """What is tested: `patch set/own modules`, each by 12 hex digits of a hash. The first is
    `edited` where files of the patched tree are not what their patches make of them."""
    found = provenance.read()
    digest = hashlib.sha256()
    modules = Path(spec_hardening.__file__).parent
    for file in sorted(modules.rglob("*.py")):
        digest.update(str(file.relative_to(modules)).encode() + file.read_bytes())
    patches = "edited" if found.changed else (found.patch_set or "none")[:12]
    return f"{patches}/{digest.hexdigest()[:12]}"


def of_code(records: Iterable[Record], code: str) -> tuple[int, Counter[str]]:
    """How many are of `code`, and how many of each other code, most first."""
    counted = Counter(record.code for record in records)
    own = counted.pop(code, 0)
    return own, Counter(dict(counted.most_common()))


def stated_code(document: str) -> str:
    """The code that a docs/faults.md names as that of the day it was written; "" if none."""
    found = re.search(r"^- code when this was written.*: `(\S+)`$", document, re.MULTILINE)
    return found[1] if found else ""


def table(records: Iterable[Record], cells: list[Cell], code: str) -> str:
    """docs/faults.md: what became of each of `cells` that was run, which were not, and how many
    were run with `code`, that of the tree it is written from."""
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
    return "\n".join([_head(run, cells, bad, code), *rows, *_tail(missing, bad), ""])


HEAD = """# Faults and what becomes of them

Written by `make faults` from `test/results/faults.jsonl`: {run} of {cells} cells, {stages}
stages, run on {days}; {held} ended as they must, {bad} did not. Real servers and Engines on a
CPU with 2 cores, the tiny pair, forked from a preloaded process, other work beside them.

- seconds from launch to end: median {median:.1f}, longest {longest:.1f}
- code when this was written (patch set/own modules, by hash): `{code}`
- run with this code: {own} of {run}; with other code: {other}

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


def _head(run: list[Record], cells: list[Cell], bad: list[Record], code: str) -> str:
    own, other = of_code(run, code)
    seconds = [record.seconds for record in run] or [0.0]
    return HEAD.format(
        run=len(run),
        cells=len(cells),
        stages=len({record.stage for record in run}),
        days=", ".join(sorted({record.day for record in run})) or "no day",
        held=len(run) - len(bad),
        bad=len(bad),
        code=code,
        own=own,
        other=_counts(other) or "none",
        median=statistics.median(seconds),
        longest=max(seconds),
    )


def _counts(other: Counter[str]) -> str:
    return ", ".join(f"{number} (`{code}`)" for code, number in other.items())


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
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    cells, code = [row.cell for row in whole()], code_hash()
    records = [record for record in read(given.results) if record.cell in set(cells)]
    if given.write is not None:
        given.write.write_text(table(records, cells, code))
    own, other = of_code(records, code)
    print(f"{own} of {len(cells)} cells are of this code, {code}; of other code: {other.total()}")
    sys.exit(given.write is None and own < len(cells))


if __name__ == "__main__":
    main()
