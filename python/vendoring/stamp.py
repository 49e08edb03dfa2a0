"""The stamp `_spec_pin.json`: written last, so a tree that has one is whole. The running package
reads it too.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from .layout import OWN_PACKAGE
from .pin import Pin, PinnedWheel
from .series import Patch, patch_set_hash, touched_paths
from .unpack import PACKAGE, archive_of, package_entries

_NO_ENGINE = ("multimodal_gen/", "test/")


class Identity(NamedTuple):
    """What has to be equal for a tree to be the one that is wanted."""

    version: str
    spec: int
    tag: str
    wheel_sha256: str
    patch_set: str


def wanted(pin: Pin, wheel: PinnedWheel, patches: tuple[Patch, ...]) -> Identity:
    return Identity(pin.version, pin.spec, wheel.tag, wheel.sha256, patch_set_hash(patches))


def stamp_of(
    identity: Identity,
    patches: tuple[Patch, ...],
    tree: Path,
    own: Path,
    wheel: Path | None = None,
) -> dict[str, Any]:
    """The stamp's content: hashes of the program in `tree` and of our own package at `own`.

    Where `tree` holds the patched files only, those of the others are taken from the upstream
    `wheel`.
    """
    files = wheel_hashes(wheel, touched_paths(patches)) if wheel else {}
    files |= tree_hashes(tree, patches)
    return {
        **identity._asdict(),
        "patches": [{"slug": patch.slug, "sha256": patch.sha256} for patch in patches],
        "files": dict(sorted(files.items())),
        "own": own_hashes(own),
    }


def is_stamped(path: str) -> bool:
    """Does a stamp give this upstream file's hash, whether it is patched or not? All that a server
    can import, of which the servers of pictures and upstream's own tests are no part.
    """
    return path.endswith(".py") and not path.startswith(_NO_ENGINE)


def tree_hashes(tree: Path, patches: tuple[Patch, ...]) -> dict[str, str]:
    """sha256 by path of the patched files, and of all others of the program that are there."""
    names = {path.relative_to(tree).as_posix() for path in tree.rglob("*.py")}
    kept = {name for name in names if is_stamped(name) and not name.startswith(f"{OWN_PACKAGE}/")}
    kept |= {name for name in touched_paths(patches) if (tree / name).is_file()}
    return {name: _sha256((tree / name).read_bytes()) for name in kept}


def wheel_hashes(wheel: Path, without: tuple[str, ...]) -> dict[str, str]:
    """The same for an upstream wheel, but for the paths in `without`."""
    left_out = set(without)
    archive = archive_of(wheel)
    entries = {e.filename.removeprefix(PACKAGE): e for e in package_entries(archive)}
    kept = (name for name in entries if is_stamped(name) and name not in left_out)
    return {name: _sha256(archive.read(entries[name])) for name in kept}


def own_hashes(own: Path) -> dict[str, str]:
    """sha256 of each file of our own package, by path in the tree."""
    found = (path for path in own.rglob("*") if path.is_file())
    files = (path for path in found if path.suffix != ".pyc" and not path.name.startswith("."))
    names = {f"{OWN_PACKAGE}/{path.relative_to(own).as_posix()}": path for path in files}
    return {name: _sha256(names[name].read_bytes()) for name in sorted(names)}


def renew_own(path: Path, own: Path) -> None:
    """Our own package is in the project's git, and edited there without a tree being made: `apply`
    says which it is. Touches nothing if the stamp says so already.
    """
    content = read_stamp(path)
    if content is not None and content.get("own") != (found := own_hashes(own)):
        write_stamp(path, {**content, "own": found})


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_stamp(path: Path, content: dict[str, Any]) -> None:
    """Writes the stamp in one step: it is there whole, or not at all."""
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def read_stamp(path: Path) -> dict[str, Any] | None:
    """The stamp's content, None where there is none or it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def identity_of(content: dict[str, Any]) -> Identity | None:
    """Identity in a stamp, None if it lacks a part."""
    try:
        return Identity(**{name: content[name] for name in Identity._fields})
    except KeyError:
        return None
