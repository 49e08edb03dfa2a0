"""Trees without a patch that guards a fault of GPUs can be made where nothing else is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import gpu_mutants
from kit.upstream import site
from vendoring.errors import VendoringError
from vendoring.layout import Layout
from vendoring.series import read_series
from vendoring.undo import undone

ROOT = Path(__file__).resolve().parents[3]


def test_every_guard_can_be_taken_back(tmp_path: Path) -> None:
    gpu_mutants.write(tmp_path, list(gpu_mutants.GUARDS))
    for slug in gpu_mutants.GUARDS:
        files = [path for path in (tmp_path / slug).rglob("*") if path.is_file()]
        assert files, slug
        for path in files:
            name = path.relative_to(tmp_path / slug)
            assert path.read_text() != (site() / name).read_text(), name
            compile(path.read_text(), str(name), "exec")
    worker = tmp_path / "construction-stages/sglang/srt/speculative/eagle_worker_v2.py"
    assert "self_test" not in worker.read_text(), "what depends on it is gone with it"


def test_every_patch_with_a_test_on_gpus_is_tried_without_it() -> None:
    patches = {patch.slug: patch for patch in read_series(Layout(ROOT))}
    tested = {
        slug
        for slug, patch in patches.items()
        if any(test.startswith("test/gpu/") for test in patch.header.tests)
    }
    assert tested <= set(gpu_mutants.GUARDS)
    assert {*gpu_mutants.GUARDS, *gpu_mutants.STOOD_IN} <= set(patches)
    assert not set(gpu_mutants.GUARDS) & set(gpu_mutants.STOOD_IN)


def test_the_whole_series_taken_back_is_upstream(tmp_path: Path) -> None:
    from kit.upstream import taken_back
    from vendoring.series import series_names

    names = series_names((ROOT / "patches/series").read_text())
    plain = taken_back(tmp_path) / "sglang"
    files = [ROOT / "patches" / f"{slug}.patch" for slug in reversed(names)]
    for name, text in undone(files, site() / "sglang").items():
        if text:  # a file that a patch adds
            assert text == (plain / name).read_text(), name


def test_a_patch_under_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VendoringError, match="a later patch changed the lines"):
        undone([ROOT / "patches/construction-stages.patch"], site() / "sglang")
