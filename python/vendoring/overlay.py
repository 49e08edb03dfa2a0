"""`overlay DIR`: patched files, own package and stamp, to be copied over a plain upstream
installation.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from .errors import VendoringError
from .gitrepo import BASE_REF
from .interpreter import any_wheel
from .layout import OWN_PACKAGE, STAMP_NAME, Layout
from .pin import read_pin
from .series import read_series, touched_paths
from .stack import apply_exactly, scratch
from .stamp import stamp_of, wanted, write_stamp
from .state import Condition, has_upstream_files, inspect, repo_of
from .tree import refusal
from .wheel_cache import resolve


class Overlay(NamedTuple):
    """Paths that were written, and upstream files to be deleted over there."""

    files: tuple[str, ...]
    delete: tuple[str, ...]


def write_overlay(
    layout: Layout, folder: Path, tag: str | None = None, with_edits: bool = False
) -> Overlay:
    """Writes `folder/sglang/...` for interpreter `tag`. The folder must be new or empty.

    Takes what `patches/` says; work in the tree that it lacks is an error, or goes in `with_edits`.
    """
    pin = read_pin(layout.pin)
    wheel = any_wheel(pin, tag)
    patches = read_series(layout)
    identity = wanted(pin, wheel, patches)
    state = inspect(layout, identity)
    if state.condition is Condition.EDITED and not with_edits:
        fault = refusal(state)
        fault.remedy = "`python -m vendoring export` first, or give --with-edits"
        raise fault
    if folder.exists() and any(folder.iterdir()):
        raise VendoringError(
            "the folder for the overlay is not empty", file=str(folder), remedy="name a new folder"
        )
    names = set(touched_paths(patches))
    if state.condition is Condition.EDITED:
        committed = repo_of(layout).run("diff", "--name-only", "--no-renames", BASE_REF)
        names |= {*state.edits, *filter(None, committed.split("\n"))}
    target = folder / "sglang"
    file = resolve(pin, wheel)
    with scratch(pin, file, patches) as repo:
        for patch in patches:
            apply_exactly(repo, patch)
        source = layout.tree if with_edits and has_upstream_files(layout) else repo.work_tree
        _copy(source, target, names)
        gone = tuple(sorted(name for name in names if not (source / name).is_file()))
    if layout.own.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(layout.own, target / OWN_PACKAGE, ignore=ignored, dirs_exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    write_stamp(target / STAMP_NAME, stamp_of(identity, patches, target, layout.own, file))
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return Overlay(tuple(sorted(str(path) for path in files)), gone)


def _copy(source: Path, target: Path, names: set[str]) -> None:
    for name in sorted(names):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)
