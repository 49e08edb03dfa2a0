"""Is there room? Asked before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path

from .errors import VendoringError

_MIB = 1024 * 1024


def require_free(path: Path, needed: int, what: str) -> None:
    """Raises a named error if the file system of `path` has fewer than `needed` bytes free for
    `what`.
    """
    existing = path
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise VendoringError(
            f"too little disk space for {what}: "
            f"{needed // _MIB} MiB needed, {free // _MIB} MiB free",
            file=str(path),
            value=f"{free} bytes free",
            remedy=f"free {(needed - free) // _MIB + 1} MiB there and run again",
        )
