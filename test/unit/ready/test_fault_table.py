"""docs/faults.md is what its generator makes of the stored results, and hides nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kit import fault_matrix, fault_table
from sglang.srt.spec_hardening import stages

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "test/results/faults.jsonl"
CELLS = [row.cell for row in fault_matrix.whole()]


def test_the_document_is_made_from_the_stored_results() -> None:
    stored = fault_table.read(RESULTS)
    assert (ROOT / "docs/faults.md").read_text() == fault_table.table(stored, CELLS), "make faults"


def test_every_stored_run_ended_as_it_must() -> None:
    stored = fault_table.read(RESULTS)
    assert stored and not [(record.cell, record.wrong) for record in stored if record.wrong]


def test_the_matrix_has_every_kind_of_every_stage_on_both_fronts_and_sizes() -> None:
    for stage in (*stages.STAGES, *stages.CYCLE):
        for kind in (*stages.CONTROL_KINDS, *stage.tensor_kinds):
            for front in ("server", "engine"):
                assert {(stage.name, kind, front, size) for size in (1, 2)} <= set(CELLS)


RECORD = fault_table.Record(
    *CELLS[0], 3.21, "exit code 1", "x: rank TP0 (pid 7) failed | no", (), "2026-01-02", "abc"
)


def test_what_was_not_run_and_what_went_wrong_are_listed() -> None:
    stage, kind, _, size = CELLS[1]
    wrong = replace(RECORD, stage=stage, kind=kind, front=CELLS[1][2], tp=size, wrong=("left",))
    text = fault_table.table([RECORD, wrong], CELLS)
    assert f"2 of {len(CELLS)} cells" in text and "2026-01-02" in text and "modules): abc" in text
    assert "exit 1, 3 s" in text and "WRONG: exit 1" in text and "TP 2: left" in text
    assert "rank TP0 (pid 7) failed \\| no" in text
    for stage, kind, front, size in CELLS[2:]:
        assert f"- {stage}:{kind}, {front}, TP {size}\n" in text
    assert "TP 1\n" not in text.partition("## Not run")[2].partition(f"- {CELLS[2][0]}")[0]


def test_the_last_run_of_a_cell_counts(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    fault_table.append(file, replace(RECORD, wrong=("left",)))
    fault_table.append(file, RECORD)
    assert fault_table.read(file) == [RECORD]
