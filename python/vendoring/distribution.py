"""The distribution `sglang 0.5.23+spec.N`: what goes into its metadata and its wheels."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .layout import OWN_PACKAGE, STAMP_NAME, Layout
from .metadata import (
    kernel_by_version,
    kernel_from_checkout,
    own_licenses,
    own_requirements,
    patched_entry_points,
    patched_metadata,
    requirements,
    target_device,
    upstream_requirements,
)
from .pin import Pin, PinnedWheel
from .series import Patch, touched_paths
from .stack import apply_exactly, scratch
from .stamp import stamp_of, wanted
from .talk import say, tracked
from .unpack import PACKAGE, package_entries, read_metadata
from .wheelfile import WheelWriter, wheel_file


@dataclass(frozen=True)
class Distribution:
    """Metadata files by name, and the requirements in them."""

    name: str
    version: str
    requirements: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]

    @property
    def dist_info(self) -> str:
        return f"{self.name}-{self.version}.dist-info"


def describe(
    layout: Layout, pin: Pin, wheel: PinnedWheel, file: Path, from_checkout: bool
) -> Distribution:
    """Metadata out of the upstream wheel `file`.

    `from_checkout` says that this installs a checkout, so its kernel folder can be named as a
    requirement.
    """
    device = target_device(pin)
    kernel = kernel_from_checkout(layout, device) if from_checkout else kernel_by_version(device)
    upstream = read_metadata(file, "METADATA")
    needed = requirements(upstream_requirements(upstream), device, kernel)
    needed += own_requirements(layout)
    files = [
        ("METADATA", patched_metadata(upstream, pin.local_version, needed).encode()),
        ("WHEEL", wheel_file(wheel.tags)),
        (
            "entry_points.txt",
            patched_entry_points(read_metadata(file, "entry_points.txt")).encode(),
        ),
        ("top_level.txt", b"sglang\nsglang_spec\n"),
        ("licenses/LICENSE", read_metadata(file, "licenses/LICENSE").encode()),
    ]
    files += [(f"licenses/{path.name}", path.read_bytes()) for path in own_licenses(layout)]
    return Distribution(pin.name, pin.local_version, tuple(needed), tuple(files))


def write_wheel(
    layout: Layout,
    pin: Pin,
    wheel: PinnedWheel,
    file: Path,
    patches: tuple[Patch, ...],
    folder: Path,
) -> tuple[Path, Distribution]:
    """Writes the wheel of the patched tree, straight from the upstream wheel and `patches/`."""
    about = describe(layout, pin, wheel, file, from_checkout=False)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"writing {about.name} {about.version} ({wheel.tags})")
    with WheelWriter(folder, about.name, about.version, wheel.tags) as writer:
        for name, data, executable in _package_files(layout, pin, wheel, file, patches):
            writer.add(name, data, executable)
        for name, data in about.files:
            writer.add(f"{about.dist_info}/{name}", data)
    return writer.path, about


def write_editable(layout: Layout, pin: Pin, wheel: PinnedWheel, file: Path, folder: Path) -> Path:
    """Writes the wheel that makes an environment import this checkout's `python/`."""
    about = describe(layout, pin, wheel, file, from_checkout=True)
    with WheelWriter(folder, about.name, about.version, wheel.tags) as writer:
        writer.add("_sglang_spec_checkout.pth", f"{layout.python.resolve()}\n".encode())
        for name, data in about.files:
            writer.add(f"{about.dist_info}/{name}", data)
    return writer.path


def _package_files(
    layout: Layout, pin: Pin, wheel: PinnedWheel, file: Path, patches: tuple[Patch, ...]
) -> Iterator[tuple[str, bytes, bool]]:
    """Name, bytes and executability of every file of the two packages."""
    touched = set(touched_paths(patches))
    with zipfile.ZipFile(file) as archive:
        for entry in tracked(package_entries(archive), "packing"):
            if entry.filename.removeprefix(PACKAGE) not in touched:
                executable = bool((entry.external_attr >> 16) & 0o111)
                yield entry.filename, archive.read(entry), executable
    with scratch(pin, file, patches) as repo:
        for patch in patches:
            apply_exactly(repo, patch)
        for name in sorted(touched):
            path = repo.work_tree / name
            if path.is_file():
                yield PACKAGE + name, path.read_bytes(), bool(path.stat().st_mode & 0o111)
        stamp = stamp_of(wanted(pin, wheel, patches), patches, repo.work_tree, layout.own, file)
        yield PACKAGE + STAMP_NAME, (json.dumps(stamp, indent=1) + "\n").encode(), False
    yield from _own_files(layout.own, PACKAGE + OWN_PACKAGE)
    yield from _own_files(layout.python / "sglang_spec", "sglang_spec")


def _own_files(folder: Path, name: str) -> Iterator[tuple[str, bytes, bool]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes(), False
