"""The plain pinned SGLang, unpatched, for tests that compare with it."""

from __future__ import annotations

import importlib.util
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


def plain_tree(under: Path = ROOT / "build/plain") -> Path:
    """A folder that holds the unpatched package `sglang`; put it first on PYTHONPATH."""
    pin = read_pin(checkout().pin)
    wheel = interpreter.pinned_wheel(pin)
    folder = under.resolve() / wheel.sha256[:12]
    if not (folder / MARK).exists():
        unpack(wheel_cache.resolve(pin, wheel), folder / "sglang")
        (folder / MARK).touch()
    return folder


def taken_back(folder: Path) -> Path:
    """A copy of the package `sglang` that is imported here without any patch, for the front of
    PYTHONPATH: needs no wheel, so also for a host without a network."""
    found = importlib.util.find_spec("sglang")
    assert found is not None and found.submodule_search_locations
    shutil.copytree(found.submodule_search_locations[0], folder / "sglang", symlinks=True)
    for slug in reversed(series_names((ROOT / "patches/series").read_text())):
        command = ["git", "apply", "-R", "--unsafe-paths", f"--directory={folder / 'sglang'}"]
        subprocess.run([*command, str(ROOT / f"patches/{slug}.patch")], check=True, cwd=folder)
    return folder
