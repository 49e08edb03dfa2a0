"""The stamp `_spec_pin.json`: written last, so a tree that has one is whole. The running package
reads it too.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from .pin import Pin, PinnedWheel
from .series import Patch, patch_set_hash, touched_paths


class Identity(NamedTuple):
    """What has to be equal for a tree to be the one that is wanted."""

    version: str
    spec: int
    tag: str
    wheel_sha256: str
    patch_set: str


def wanted(pin: Pin, wheel: PinnedWheel, patches: tuple[Patch, ...]) -> Identity:
    return Identity(pin.version, pin.spec, wheel.tag, wheel.sha256, patch_set_hash(patches))


def stamp_of(identity: Identity, patches: tuple[Patch, ...], tree: Path) -> dict[str, Any]:
    """The stamp's content; `tree` holds the patched files that it gives the hashes of."""
    files = {path: tree / path for path in touched_paths(patches)}
    return {
        **identity._asdict(),
        "patches": [{"slug": patch.slug, "sha256": patch.sha256} for patch in patches],
        "files": {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in files.items()
            if path.is_file()
        },
    }


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
