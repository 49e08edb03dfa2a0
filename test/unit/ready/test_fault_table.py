"""docs/faults.md is what its generator makes of the stored results, and hides nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kit import fault_matrix, fault_table
from sglang.srt import spec_hardening
from sglang.srt.spec_hardening import provenance, stages

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "test/results/faults.jsonl"
CELLS = [row.cell for row in fault_matrix.whole()]


def test_the_document_is_made_from_the_stored_results() -> None:
    """And says of how many of them the code was that of the day it was written."""
    stored, document = fault_table.read(RESULTS), (ROOT / "docs/faults.md").read_text()
    code = fault_table.stated_code(document)
    assert code and document == fault_table.table(stored, CELLS, code), "make faults"


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
    text = fault_table.table([RECORD, wrong], CELLS, "abc")
    assert f"2 of {len(CELLS)} cells" in text and "2026-01-02" in text
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


def test_results_of_older_code_are_counted_and_are_run_again() -> None:
    """`make faults` asks for that; a table of older code would look fresh otherwise."""
    mixed = [replace(RECORD, stage=s, kind=k, front=f, tp=n) for s, k, f, n in CELLS]
    mixed = [
        replace(one, code="old/1" if number < 3 else "new/2") for number, one in enumerate(mixed)
    ]
    mixed[3] = replace(mixed[3], code="old/0")
    text = fault_table.table(mixed, CELLS, "new/2")
    assert fault_table.stated_code(text) == "new/2"
    new = len(CELLS) - 4
    assert (
        f"with this code: {new} of {len(CELLS)}; with other code: 3 (`old/1`), 1 (`old/0`)" in text
    )
    assert {row.cell for row in fault_matrix.todo(mixed, "new/2")} == set(CELLS[:4])
    assert fault_matrix.todo(mixed, None) == []
    assert len(fault_matrix.todo(mixed, "newer")) == len(CELLS)
    fresh = fault_table.table([replace(one, code="new/2") for one in mixed], CELLS, "new/2")
    assert f"with this code: {len(CELLS)} of {len(CELLS)}; with other code: none" in fresh


def test_make_faults_renews() -> None:
    _, _, recipe = (ROOT / "Makefile").read_text().partition("\nfaults:")
    command = recipe.splitlines()[1]
    assert "kit.fault_matrix" in command and "--renew" in command


def test_the_code_is_that_of_patches_and_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def code(patch_set: str, changed: tuple[str, ...] = ()) -> str:
        found = provenance.Provenance(patch_set=patch_set, changed=changed)
        monkeypatch.setattr(provenance, "read", lambda: found)
        return fault_table.code_hash()

    patches, _, modules = code("1" * 64).partition("/")
    assert patches == "1" * 12 and len(modules) == 12
    assert code("2" * 64) == f"{'2' * 12}/{modules}"
    assert code("1" * 64, ("srt/managers/scheduler.py",)) == f"edited/{modules}"
    (tmp_path / "__init__.py").write_text("")
    monkeypatch.setattr(spec_hardening, "__file__", str(tmp_path / "__init__.py"))
    assert code("1" * 64) != f"{'1' * 12}/{modules}"
    one = code("1" * 64)
    (tmp_path / "stages.py").write_text("LIMIT = 1\n")
    assert code("1" * 64) != one


def test_only_the_last_runs_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for one in (RECORD, replace(RECORD, tp=2), replace(RECORD, seconds=1.0)):
        fault_table.append(file, one)
    fault_table.keep_last(file)
    assert len(file.read_text().splitlines()) == 2
    assert {one.seconds for one in fault_table.read(file)} == {1.0, 3.21}
