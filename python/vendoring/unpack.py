"""Reads upstream wheels: the whole package onto disk, or single files."""

from __future__ import annotations

import functools
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

from .disk import require_free
from .errors import VendoringError
from .talk import tracked

PACKAGE = "sglang/"


def archive_of(wheel: Path) -> zipfile.ZipFile:
    """The wheel, open for reading. The last ones asked for stay open: reading the list of some
    thousand names takes longer than reading a few files.
    """
    status = wheel.stat()
    return _opened(wheel, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=2)
def _opened(wheel: Path, changed_ns: int, size: int) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except zipfile.BadZipFile as fault:
        raise VendoringError(
            "the wheel cannot be read",
            file=str(wheel),
            value=str(fault),
            remedy="fetch it again and name the new copy",
        ) from None


def package_entries(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Files of the package itself (not of its metadata), refusing names that would lead outside."""
    found = []
    for entry in archive.infolist():
        if entry.is_dir() or not entry.filename.startswith(PACKAGE):
            continue
        if ".." in entry.filename.split("/"):
            raise VendoringError(
                "the wheel has a file name that leads outside", value=entry.filename
            )
        found.append(entry)
    return found


def unpack(wheel: Path, target: Path, only: Iterable[str] | None = None) -> None:
    """Writes the package's files to `target` (that is `sglang/`); `only` names paths in it."""
    wanted = None if only is None else {PACKAGE + path for path in only}
    archive = archive_of(wheel)
    entries = [e for e in package_entries(archive) if wanted is None or e.filename in wanted]
    if wanted is None:
        # Twice: the files, and what git and a file system's block size add.
        require_free(target, 2 * sum(e.file_size for e in entries), "the vendored tree")
    target.mkdir(parents=True, exist_ok=True)
    for entry in tracked(entries, "unpacking"):
        path = target / entry.filename.removeprefix(PACKAGE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(entry))
        # Two modes only, whatever the umask says: git records them, and commit ids must not
        # vary.
        os.chmod(path, 0o755 if (entry.external_attr >> 16) & 0o111 else 0o644)


def read_member(wheel: Path, path: str) -> bytes | None:
    """One file of the package, None where the wheel has none of that name."""
    try:
        return archive_of(wheel).read(PACKAGE + path)
    except KeyError:
        return None


def read_metadata(wheel: Path, name: str) -> str:
    """A file of the wheel's `.dist-info` folder, e.g. `METADATA`. Raises a named error if it is not
    there.
    """
    archive = archive_of(wheel)
    for entry in archive.namelist():
        folder, _, rest = entry.partition("/")
        if folder.endswith(".dist-info") and rest == name:
            return archive.read(entry).decode("utf-8")
    raise VendoringError("the wheel lacks a metadata file", file=str(wheel), key=name)
