"""A folder of made things, outside git: each entry appears whole or not at all.

An entry is named by what it was made from, so a name that exists is never rebuilt and never
changed. Makers write into a sibling folder that is renamed at the end; a lock per entry makes
two processes that want the same entry build it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "SGLANG_SPEC_CACHE"
_BUILDING = ".building-"
_CHUNK_BYTES = 1 << 20


class ModelError(Exception):
    """A model cannot be made or found; the text says which, why and what to do."""


@dataclass(frozen=True)
class Entry:
    """One finished folder of the cache.

    Attributes:
        name: folder name, `<kind>-<12 hex digits>`.
        path: absolute path of the folder.
        size: bytes of all files in it.
    """

    name: str
    path: Path
    size: int


def root() -> Path:
    """The cache folder: `SGLANG_SPEC_CACHE`, else `$XDG_CACHE_HOME/sglang-spec/models`."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "sglang-spec" / "models"


def say(message: str) -> None:
    """One line of progress, on stderr: stdout belongs to results."""
    print(f"models: {message}", file=sys.stderr, flush=True)


def digest(recipe: dict[str, object]) -> str:
    """First 12 hex digits of the sha256 of a recipe, independent of key order."""
    text = json.dumps(recipe, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def file_sha256(path: Path) -> str:
    """The sha256 of a file in hexadecimal, read in pieces."""
    total = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(_CHUNK_BYTES):
            total.update(piece)
    return total.hexdigest()


def entry_path(name: str) -> Path:
    """Where the entry of that name is, or would be."""
    return root() / name


def entries() -> list[Entry]:
    """All finished entries, by name; an absent cache folder has none."""
    folder = root()
    if not folder.is_dir():
        return []
    found = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [Entry(path.name, path, _size(path)) for path in found]


def require_space(folder: Path, needed: int) -> None:
    """Raises ModelError, with both numbers, if `folder` has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"not enough disk space in {folder}: {needed / 1e6:.0f} MB needed, "
            f"{free / 1e6:.0f} MB free; free some or set {CACHE_VARIABLE} to another disk"
        )


def obtain(name: str, build: Callable[[Path], None], *, needed: int) -> Path:
    """The folder of that name, built on first use.

    Args:
        name: entry name; must change whenever what `build` makes would change.
        build: fills the empty folder it is given; may raise, then no entry appears.
        needed: bytes of free disk that building takes at its peak.

    Raises:
        ModelError: no space, or the cache folder cannot be written.
    """
    final = entry_path(name)
    if final.is_dir():
        return final
    folder = _writable(final.parent)
    with _lock(folder / f".lock-{name}"):
        if final.is_dir():
            return final
        # Under the lock, a half-made folder of this name can only be a dead builder's.
        for stale in folder.glob(f"{_BUILDING}{name}.*"):
            shutil.rmtree(stale)
        require_space(folder, needed)
        work = Path(tempfile.mkdtemp(prefix=f"{_BUILDING}{name}.", dir=folder))
        try:
            build(work)
            _open_to_readers(work)
            work.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return final


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"cannot make the cache folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ModelError(f"cannot write to the cache folder {folder}; set {CACHE_VARIABLE}")
    return folder


def _open_to_readers(folder: Path) -> None:
    """Temporary folders and safetensors files are private; a finished entry is not."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held until the block ends or the process dies, whichever is first."""
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is making {path.name.removeprefix('.lock-')}, waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
