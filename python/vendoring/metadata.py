"""Metadata of our distribution: upstream's own, with another version and fewer or other
requirements.

Nothing upstream lists is listed here again. The two things this adds are data: `devices` in
`patches/upstream.toml`, and `[tool.sglang-spec] dependencies` in `python/pyproject.toml`.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from .errors import VendoringError, text_of
from .layout import Layout
from .pin import Pin, TargetDevice

DEVICE_VARIABLE = "SGLANG_TARGET_DEVICE"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REQUIRES = "Requires-Dist: "


def target_device(pin: Pin) -> TargetDevice:
    """The device that `SGLANG_TARGET_DEVICE` names, `cuda` if it is not set."""
    wanted = os.environ.get(DEVICE_VARIABLE) or "cuda"
    for device in pin.devices:
        if device.name == wanted:
            return device
    raise VendoringError(
        "unknown target device",
        key=DEVICE_VARIABLE,
        value=wanted,
        remedy=f"use one of {', '.join(device.name for device in pin.devices)}",
    )


def requirement_name(requirement: str) -> str:
    """Normalised name at the start of a requirement."""
    match = _NAME.match(requirement)
    if match is None:
        raise VendoringError("a requirement has no name", value=requirement)
    return normalised(match[0])


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def own_requirements(layout: Layout) -> list[str]:
    """What our own commands need, from `python/pyproject.toml`."""
    path = layout.python / "pyproject.toml"
    data = tomllib.loads(text_of(path))
    found = data.get("tool", {}).get("sglang-spec", {}).get("dependencies", [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise VendoringError(
            "own requirements are not a list of texts",
            file=layout.shown(path),
            key="tool.sglang-spec.dependencies",
        )
    return found


def requirements(upstream: list[str], device: TargetDevice, kernel: str) -> list[str]:
    """Upstream's requirements as this device needs them.

    `kernel` stands in for upstream's kernel package where the device has its own. Whatever the
    device names has to be there, so that a list that upstream outgrew is an error and not silently
    stale.
    """
    always = {requirement_name(entry) for entry in upstream if "extra ==" not in entry}
    named = {normalised(name) for name in device.leave_out}
    own = {normalised(device.kernel_name)} if device.kernel_name else set()
    stale = sorted((named | own) - always)
    if stale:
        raise VendoringError(
            "upstream does not require what this device leaves out or replaces",
            file="patches/upstream.toml",
            key=f"devices.{device.name}",
            value=", ".join(stale),
            remedy="take these names out",
        )
    kept = []
    for entry in upstream:
        name = requirement_name(entry)
        if "extra ==" in entry or name not in named | own:
            kept.append(entry)
        elif name in own:
            _check_kernel_version(entry, device)
            kept.append(kernel)
    return kept


def _check_kernel_version(upstream: str, device: TargetDevice) -> None:
    public = device.kernel_version.split("+")[0]
    if not upstream.endswith(f"=={public}"):
        raise VendoringError(
            "our kernel package has another version than upstream requires",
            file="patches/upstream.toml",
            key=f"devices.{device.name}.kernel.version",
            value=f"{device.kernel_version}, upstream: {upstream}",
        )


def kernel_from_checkout(layout: Layout, device: TargetDevice) -> str:
    """Requirement that installs the kernel package out of this checkout."""
    if not device.kernel_name:
        return ""
    folder = layout.root / device.kernel_folder
    if not (folder / "pyproject.toml").is_file():
        raise VendoringError(
            "the checkout's own kernel package is missing",
            file=str(folder),
            key=f"devices.{device.name}.kernel.folder",
            value=device.kernel_folder,
        )
    return f"{device.kernel_name} @ {folder.resolve().as_uri()}"


def kernel_by_version(device: TargetDevice) -> str:
    """Requirement that names the kernel package by its version, for a wheel that travels."""
    return f"{device.kernel_name}=={device.kernel_version}" if device.kernel_name else ""


def split_metadata(text: str) -> tuple[list[str], str]:
    """Header lines and description of a METADATA file."""
    head, _, body = text.partition("\n\n")
    return head.split("\n"), body


def upstream_requirements(text: str) -> list[str]:
    """Values of `Requires-Dist` in a METADATA file."""
    head, _ = split_metadata(text)
    return [line.removeprefix(_REQUIRES) for line in head if line.startswith(_REQUIRES)]


def patched_metadata(text: str, version: str, wanted: list[str]) -> str:
    """Upstream's METADATA with our version and requirements; everything else stays."""
    head, body = split_metadata(text)
    lines: list[str] = []
    placed = False
    for line in head:
        if line.startswith("Version: "):
            lines.append(f"Version: {version}")
        elif not line.startswith(_REQUIRES):
            lines.append(line)
        elif not placed:
            lines += [_REQUIRES + entry for entry in wanted]
            placed = True
    return "\n".join(lines) + "\n\n" + body


def patched_entry_points(text: str) -> str:
    """Upstream's commands and ours."""
    own = "sglang-spec = sglang_spec.cli:main"
    section = "[console_scripts]"
    if section not in text.split("\n"):
        raise VendoringError("upstream's wheel has no console scripts", key=section)
    return text.replace(section + "\n", f"{section}\n{own}\n", 1)


def own_licenses(layout: Layout) -> list[Path]:
    """Licence files of this project that travel with every wheel."""
    return [path for path in (layout.root / "NOTICE",) if path.is_file()]
