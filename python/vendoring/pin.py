"""The pin in `patches/upstream.toml`: which upstream release, which wheel per interpreter."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import VendoringError, text_of

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PinnedWheel:
    """One upstream wheel: interpreter tag (`cp311`), file name, sha256 in hex."""

    tag: str
    file: str
    sha256: str

    @property
    def platform_tag(self) -> str:
        """Last part of the wheel's name, e.g. `manylinux_2_34_x86_64`."""
        return self.file.removesuffix(".whl").split("-")[4]

    @property
    def tags(self) -> str:
        """Interpreter, ABI and platform as in the wheel's name."""
        return "-".join(self.file.removesuffix(".whl").split("-")[2:5])


@dataclass(frozen=True)
class TargetDevice:
    """What one value of `SGLANG_TARGET_DEVICE` changes in the requirements.

    `leave_out` are names that upstream requires and this device does not need. `own_kernels` says
    that `sglang-kernel` comes from the checkout's `sgl-kernel/` folder, with `kernel_version`.
    """

    name: str
    leave_out: tuple[str, ...] = ()
    kernel_name: str = ""
    kernel_version: str = ""
    kernel_folder: str = ""


@dataclass(frozen=True)
class Pin:
    """The upstream release that this checkout is built on."""

    name: str
    version: str
    spec: int
    system: str
    machine: str
    wheels: tuple[PinnedWheel, ...]
    devices: tuple[TargetDevice, ...]

    @property
    def local_version(self) -> str:
        """Version of the patched distribution."""
        return f"{self.version}+spec.{self.spec}"

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(wheel.tag for wheel in self.wheels)

    def wheel(self, tag: str) -> PinnedWheel:
        """The wheel pinned for an interpreter tag. Raises a named error for any other tag."""
        for wheel in self.wheels:
            if wheel.tag == tag:
                return wheel
        raise VendoringError(
            f"no wheel of {self.name} {self.version} is pinned for interpreter {tag}",
            file="patches/upstream.toml",
            key="wheels",
            value=tag,
            remedy=f"use one of the pinned interpreters: {', '.join(self.tags)}",
        )


def read_pin(path: Path) -> Pin:
    """Reads and validates `patches/upstream.toml`. Unknown or missing keys are errors."""
    try:
        data = tomllib.loads(text_of(path))
    except FileNotFoundError:
        raise VendoringError("the pin file is missing", file=str(path)) from None
    except tomllib.TOMLDecodeError as fault:
        raise VendoringError("the pin file is not TOML", file=str(path), value=str(fault)) from None
    _only(path, "", data, {"upstream", "wheels", "devices"})
    upstream = _table(path, data, "upstream")
    _only(path, "upstream", upstream, {"name", "version", "spec", "system", "machine"})
    spec = upstream.get("spec")
    if not isinstance(spec, int) or isinstance(spec, bool) or spec < 1:
        raise _bad(path, "upstream.spec", spec, "a whole number from 1")
    wheels = _table(path, data, "wheels")
    devices = _table(path, data, "devices")
    return Pin(
        name=_text(path, upstream, "upstream", "name"),
        version=_text(path, upstream, "upstream", "version"),
        spec=spec,
        system=_text(path, upstream, "upstream", "system"),
        machine=_text(path, upstream, "upstream", "machine"),
        wheels=tuple(_wheel(path, tag, _table(path, wheels, tag)) for tag in wheels),
        devices=tuple(_device(path, name, _table(path, devices, name)) for name in devices),
    )


def _wheel(path: Path, tag: str, entry: dict[str, Any]) -> PinnedWheel:
    _only(path, f"wheels.{tag}", entry, {"file", "sha256"})
    wheel = PinnedWheel(
        tag,
        _text(path, entry, f"wheels.{tag}", "file"),
        _text(path, entry, f"wheels.{tag}", "sha256"),
    )
    parts = wheel.file.removesuffix(".whl").split("-")
    if not wheel.file.endswith(".whl") or len(parts) != 5 or parts[2] != tag:
        raise _bad(path, f"wheels.{tag}.file", wheel.file, f"a wheel name tagged {tag}")
    if not _SHA256.fullmatch(wheel.sha256):
        raise _bad(path, f"wheels.{tag}.sha256", wheel.sha256, "64 hexadecimal digits")
    return wheel


def _device(path: Path, name: str, entry: dict[str, Any]) -> TargetDevice:
    where = f"devices.{name}"
    _only(path, where, entry, {"leave-out", "kernel"})
    leave_out = entry.get("leave-out", [])
    if not isinstance(leave_out, list) or not all(isinstance(item, str) for item in leave_out):
        raise _bad(path, f"{where}.leave-out", leave_out, "a list of requirement names")
    if "kernel" not in entry:
        return TargetDevice(name, tuple(leave_out))
    kernel = _table(path, entry, "kernel")
    _only(path, f"{where}.kernel", kernel, {"name", "version", "folder"})
    fields = [_text(path, kernel, f"{where}.kernel", key) for key in ("name", "version", "folder")]
    return TargetDevice(name, tuple(leave_out), *fields)


def _table(path: Path, data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise _bad(path, key, value, "a table")
    return value


def _text(path: Path, data: dict[str, Any], where: str, key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise _bad(path, f"{where}.{key}", value, "a text")
    return value


def _only(path: Path, where: str, data: dict[str, Any], known: set[str]) -> None:
    for key in data:
        if key not in known:
            raise _bad(path, f"{where}.{key}".lstrip("."), data[key], f"one of {sorted(known)}")


def _bad(path: Path, key: str, value: object, wanted: str) -> VendoringError:
    return VendoringError(
        "the pin file has a value that cannot be used",
        file=str(path),
        key=key,
        value=repr(value),
        remedy=f"write {wanted}",
    )
