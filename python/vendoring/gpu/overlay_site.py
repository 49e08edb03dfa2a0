"""Puts the overlay beside this file over a plain SGLang, or takes it off: `on SITE`, `off SITE`.

What it replaces is kept in `SITE/.sglang-spec-plain`, so that a pack with fewer patches leaves none
of an earlier one's files behind. Standard library only; runs on the GPU machine.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = ".sglang-spec-plain"
LIST = "files.json"


def put_on(site: Path, overlay: Path, about: dict[str, Any]) -> int:
    """Replaces and deletes files; gives their number. Refuses another SGLang or Python."""
    take_off(site)
    _check(site, about)
    kept = site / KEPT
    names = sorted(p.relative_to(overlay).as_posix() for p in overlay.rglob("*") if p.is_file())
    gone = [f"sglang/{name}" for name in about["delete"]]
    kept.mkdir()
    for name in [*names, *gone]:
        if (site / name).is_file():
            _copy(site / name, kept / name)
    # Written before the first change: whatever happens next can be taken back.
    (kept / LIST).write_text(json.dumps([*names, *gone]))
    for name in names:
        _copy(overlay / name, site / name)
    for name in gone:
        (site / name).unlink(missing_ok=True)
    return len(names)


def take_off(site: Path) -> bool:
    """Back to the plain files, where an overlay was put on."""
    kept = site / KEPT
    if not (kept / LIST).is_file():
        shutil.rmtree(kept, ignore_errors=True)
        return False
    for name in json.loads((kept / LIST).read_text()):
        if (kept / name).is_file():
            _copy(kept / name, site / name)
        else:
            (site / name).unlink(missing_ok=True)
            _remove_empty(site / name, site)
    shutil.rmtree(kept)
    return True


def _remove_empty(file: Path, site: Path) -> None:
    """The folders of a file that is gone, as far as nothing else is in them."""
    for folder in file.parents:
        if folder == site or any(path.name != "__pycache__" for path in folder.iterdir()):
            return
        shutil.rmtree(folder)


def _copy(source: Path, target: Path) -> None:
    """With the date of now, and without the bytecode of what was there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    Path(importlib.util.cache_from_source(str(target))).unlink(missing_ok=True)
    target.unlink(missing_ok=True)  # the plain file may be a hard link to somebody else's
    shutil.copyfile(source, target)


def _check(site: Path, about: dict[str, Any]) -> None:
    if not (site / "sglang" / "__init__.py").is_file():
        raise SystemExit(f"overlay: {site} holds no package sglang")
    found = [path.stem.split("-")[1] for path in site.glob("sglang-*.dist-info")]
    if found and about["version"] not in found:
        raise SystemExit(
            f"overlay: {site} holds sglang {', '.join(found)}, the pack is for {about['version']}"
        )
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if tag != about["python_tag"]:
        raise SystemExit(
            f"overlay: this Python is {tag}, the pack is for {about['python_tag']}; "
            f"make one with `python -m vendoring pack FILE --python-tag {tag}`"
        )


def main(arguments: list[str]) -> None:
    try:
        _run(arguments[0], Path(arguments[1]))
    except OSError as fault:
        raise SystemExit(
            f"overlay: {fault.strerror}: {fault.filename}; may you write there, and is the pack "
            "whole? What was changed so far, `run-gpu.sh --plain` takes back"
        ) from None


def _run(what: str, site: Path) -> None:
    if what == "off":
        print("overlay: taken off" if take_off(site) else "overlay: there was none")
        return
    about = json.loads((HERE / "pack.json").read_text())
    count = put_on(site, HERE / "overlay", about)
    print(f"overlay: {count} files over {site}, patch set {about['patch_set'][:12]}")


if __name__ == "__main__":
    main(sys.argv[1:])
