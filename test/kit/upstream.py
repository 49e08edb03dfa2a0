"""The plain pinned SGLang, unpatched, for tests that compare with it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

from vendoring import interpreter, wheel_cache
from vendoring.layout import checkout
from vendoring.pin import read_pin
from vendoring.series import series_names
from vendoring.unpack import unpack

ROOT = Path(__file__).resolve().parents[2]
MARK = ".whole"
KEPT, LIST = ".sglang-spec-plain", "files.json"  # of vendoring/gpu/overlay_site.py
_BYTECODE = shutil.ignore_patterns("__pycache__")


def plain_tree(under: Path = ROOT / "build/plain") -> Path:
    """A folder that holds the unpatched package `sglang`; put it first on PYTHONPATH."""
    pin = read_pin(checkout().pin)
    wheel = interpreter.pinned_wheel(pin)
    folder = under.resolve() / wheel.sha256[:12]
    if not (folder / MARK).exists():
        unpack(wheel_cache.resolve(pin, wheel), folder / "sglang")
        (folder / MARK).touch()
    return folder


def site() -> Path:
    """The folder of the package `sglang` that is used here; found without importing it."""
    found = importlib.util.find_spec("sglang")
    assert found is not None and found.submodule_search_locations, "sglang is not installed"
    return Path(next(iter(found.submodule_search_locations))).parent


def kept_plain() -> list[str]:
    """Names of the files that an overlay has replaced, added or deleted there."""
    file = site() / KEPT / LIST
    names: list[str] = json.loads(file.read_text()) if file.is_file() else []
    return names


def taken_back(folder: Path) -> Path:
    """A copy of the package `sglang` that is used here without any patch, for the front of
    PYTHONPATH: needs no wheel, so also for a host without a network. An overlay has kept what it
    replaced; elsewhere git takes the patches back."""
    shutil.copytree(site() / "sglang", folder / "sglang", symlinks=True, ignore=_BYTECODE)
    if names := kept_plain():
        for name in names:
            (folder / name).unlink(missing_ok=True)
            if (kept := site() / KEPT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(kept, folder / name)
        shutil.rmtree(folder / "sglang/srt/spec_hardening", ignore_errors=True)  # empty folders
        return folder
    for slug in reversed(series_names((ROOT / "patches/series").read_text())):
        git_apply(ROOT / f"patches/{slug}.patch", folder / "sglang", "-R")
    return folder


def git_apply(patch: Path, package: Path, *options: str) -> None:
    """Change the files of `package` as the patch says, wherever the folder lies.

    Inside of a repository `git apply` leaves out, without a word and with exit status 0, every
    file that it takes to be outside of its own folder there; so no repository is looked for.
    """
    into = package.resolve()
    subprocess.run(
        ["git", "apply", *options, "--unsafe-paths", f"--directory={into}", str(patch.resolve())],
        check=True,
        cwd=into.parent,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(into.parent.parent)},
    )
