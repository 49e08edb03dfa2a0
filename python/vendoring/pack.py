"""`pack FILE.tar.gz`: what a GPU machine that has the plain wheel needs to run the GPU tests.

The machine has no network and another Python than this host, so nothing is built there: the
overlay for that Python, our commands, the tests with their kits, the draft, and `run-gpu.sh`, which
puts the overlay in place, runs the tests and leaves JUnit XML and results in one folder.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .errors import VendoringError
from .gitrepo import listed
from .layout import Layout
from .overlay import write_overlay
from .pin import read_pin
from .series import patch_set_hash, read_series
from .wheel_cache import sha256_of

ROOT = "sglang-spec"  # the one folder in the archive
MOST = 60 * 1024 * 1024  # bytes of one file that travels to such a machine
TAG = "cp312"  # the Python of the GPU machines
_FOLDERS = (
    *("patches", "python/sglang_spec", "python/vendoring", "sgl-kernel/src"),
    *("test", "models", "benchmark"),
)
_FILES = ("pyproject.toml", "LICENSE", "NOTICE")
_RUNNER = Path(__file__).parent / "gpu"


class Packed(NamedTuple):
    """The archive, its size in bytes, its hash, and the number of files in it."""

    file: str
    size: int
    sha256: str
    files: int


def write_pack(
    layout: Layout, target: Path, tag: str = TAG, with_edits: bool = False, most: int = MOST
) -> Packed:
    """Writes the archive. Same checkout, same bytes: names sorted, no dates, no owners.

    Raises:
        VendoringError: it would be larger than `most` bytes; nothing is left at `target` then.
    """
    with tempfile.TemporaryDirectory(prefix="sglang-spec-") as folder:
        overlay = Path(folder) / "overlay"
        done = write_overlay(layout, overlay, tag, with_edits)
        entries = dict(_checkout_files(layout))
        entries |= {f"overlay/{name}": overlay / name for name in done.files}
        entries |= {path.name: path for path in _RUNNER.iterdir() if path.is_file()}
        about = json.dumps(_about(layout, tag, done.delete), indent=1) + "\n"
        partial = target.with_name(target.name + ".part")
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            partial.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted([*entries, "pack.json"]):
                data = entries[name].read_bytes() if name in entries else about.encode()
                _add(archive, name, data)
    size = partial.stat().st_size
    if size > most:
        partial.unlink()
        raise VendoringError(
            "the pack is larger than what travels to a GPU machine",
            file=str(target),
            value=f"{size / 2**20:.1f} MiB, at most {most / 2**20:.0f} MiB",
            remedy="keep large data out of test/ and models/",
        )
    partial.replace(target)
    return Packed(str(target), size, sha256_of(target), len(entries) + 1)


def _about(layout: Layout, tag: str, delete: tuple[str, ...]) -> dict[str, object]:
    """What `run-gpu.sh` has to know, and what goes into its results."""
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    return {
        "name": pin.name,
        "version": pin.version,
        "spec": pin.spec,
        "python_tag": tag,
        "patch_set": patch_set_hash(patches),
        "patches": [patch.slug for patch in patches],
        "delete": list(delete),
    }


def _checkout_files(layout: Layout) -> Iterator[tuple[str, Path]]:
    """Files of the checkout that git would keep, by path in it; no build results."""
    for name in _FILES:
        if (layout.root / name).is_file():
            yield name, layout.root / name
    for path in _listed(layout.root):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(layout.root).as_posix(), path


def _listed(root: Path) -> list[Path]:
    if not (root / ".git").exists():
        found = (path for folder in _FOLDERS for path in (root / folder).rglob("*"))
        return [path for path in found if "__pycache__" not in path.parts]
    return listed(root, "--cached", "--others", "--exclude-standard", "--", *_FOLDERS)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(f"{ROOT}/{name}")
    entry.size = len(data)
    entry.mode = 0o755 if name.endswith(".sh") else 0o644
    archive.addfile(entry, io.BytesIO(data))
