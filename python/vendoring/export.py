"""From commits to `patches/`: files, series, and the stamp of the tree they were taken from."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from .errors import VendoringError, text_of
from .gitrepo import APPLIED_REF, BASE_REF
from .interpreter import pinned_wheel
from .layout import Layout
from .lock import locked
from .pin import read_pin
from .series import Patch, encode, read_series, series_names, series_text
from .stack import exported
from .stamp import read_stamp, stamp_of, wanted, write_stamp
from .state import repo_of
from .table import table_text


class Written(NamedTuple):
    """What an export changed under `patches/` (names), and the patches that are there now."""

    changed: tuple[str, ...]
    removed: tuple[str, ...]
    patches: tuple[Patch, ...]


def export(layout: Layout) -> Written:
    """Writes the vendored history to `patches/`. Uncommitted edits are not exported."""
    with locked(layout.lock):
        repo = repo_of(layout)
        if not layout.git_dir.is_dir() or repo.resolve(BASE_REF) is None:
            raise VendoringError(
                "there is no vendored tree to export from", remedy="python -m vendoring apply"
            )
        if repo.operation():
            raise VendoringError(
                f"a {repo.operation()} is not finished",
                remedy=f"python -m vendoring git {repo.operation()} --continue (or --abort)",
            )
        written = write_patches(layout, exported(repo, BASE_REF))
        repo.run("update-ref", APPLIED_REF, "HEAD")
        _restamp(layout, written.patches)
        return written


def write_patches(layout: Layout, patches: tuple[Patch, ...]) -> Written:
    """Makes `patches/` hold exactly these patches, touching only files whose content changes."""
    layout.patches.mkdir(exist_ok=True)
    wanted_files = {layout.patches / f"{patch.slug}.patch": encode(patch.text) for patch in patches}
    old_series = text_of(layout.series) if layout.series.is_file() else ""
    gone = [layout.patches / f"{name}.patch" for name in series_names(old_series)]
    series = series_text(old_series, [patch.slug for patch in patches])
    wanted_files[layout.series] = series.encode()
    wanted_files[layout.table] = table_text(patches).encode()
    changed = [path.name for path, data in wanted_files.items() if _write(path, data)]
    removed = [path for path in gone if path not in wanted_files and path.is_file()]
    for path in removed:
        path.unlink()
    return Written(tuple(changed), tuple(path.name for path in removed), patches)


def _write(path: Path, data: bytes) -> bool:
    if path.is_file() and path.read_bytes() == data:
        return False
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(data)
    os.replace(partial, path)
    return True


def _restamp(layout: Layout, patches: tuple[Patch, ...]) -> None:
    """The tree's commits now equal `patches/`, so its stamp says so. A tree without a stamp gets
    none.
    """
    pin = read_pin(layout.pin)
    if read_stamp(layout.stamp) is None or layout.swap_mark.exists():
        return
    identity = wanted(pin, pinned_wheel(pin), read_series(layout))
    content = stamp_of(identity, patches, layout.tree, layout.own)
    repo = repo_of(layout)
    for name in set(repo.changes()) & set(content["files"]):  # an edit that is not exported
        committed = repo.attempt("cat-file", "blob", f"HEAD:{name}")
        content["files"].pop(name)
        if committed.returncode == 0:
            content["files"][name] = hashlib.sha256(committed.stdout).hexdigest()
    content["files"] = dict(sorted(content["files"].items()))
    write_stamp(layout.stamp, content)
