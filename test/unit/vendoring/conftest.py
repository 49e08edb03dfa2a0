"""A temporary project per test, with git and caches of its own."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from kit.vendoring_project import Project, make_project


def _isolate(monkeypatch: pytest.MonkeyPatch, folder: Path, project: Project) -> None:
    settings = folder / "gitconfig"
    settings.write_text("[user]\n\tname = Ada Example\n\temail = ada@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("SGLANG_UPSTREAM_WHEEL", str(project.wheel))
    monkeypatch.delenv("SGLANG_TARGET_DEVICE", raising=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """No tree yet, and no patches."""
    made = make_project(tmp_path)
    _isolate(monkeypatch, tmp_path, made)
    return made


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made tree with two exported patches in different files; tests work on copies."""
    folder = tmp_path_factory.mktemp("template")
    made = make_project(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        _isolate(monkeypatch, folder, made)
        made.fine("apply")
        made.patch("widen", "srt/engine.py", "width=1", "width=2")
        made.patch("more-steps", "srt/args.py", "steps: int = 3", "steps: int = 4")
    return folder


@pytest.fixture
def patched(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the template."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    made = Project(tmp_path / "checkout", next((tmp_path / "wheels").glob("*.whl")))
    _isolate(monkeypatch, tmp_path, made)
    return made


@pytest.fixture
def site(patched: Project, tmp_path: Path) -> Path:
    """A plain installation."""
    folder = tmp_path / "site"
    with zipfile.ZipFile(patched.wheel) as archive:
        archive.extractall(folder)
    return folder
