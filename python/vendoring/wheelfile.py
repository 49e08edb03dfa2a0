"""Writes wheels: a zip with a RECORD, the same bytes for the same content on every machine."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from pathlib import Path
from types import TracebackType

# The earliest date a zip can hold: a build date would make every build different.
_DATE = (1980, 1, 1, 0, 0, 0)


class WheelWriter:
    """A wheel being written. It appears under its name only when it is whole."""

    def __init__(self, folder: Path, distribution: str, version: str, tags: str) -> None:
        """`tags` is interpreter, ABI and platform, e.g. `cp311-cp311-manylinux_2_34_x86_64`."""
        self.path = folder / f"{distribution}-{version}-{tags}.whl"
        self.dist_info = f"{distribution}-{version}.dist-info"
        self._partial = self.path.with_suffix(".part")
        self._zip = zipfile.ZipFile(self._partial, "w", zipfile.ZIP_DEFLATED)
        self._record: list[str] = []

    def add(self, name: str, data: bytes, executable: bool = False) -> None:
        """Adds one file; `name` is its path in the wheel."""
        self._write(name, data, executable)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{_csv(name)},sha256={digest},{len(data)}\n")

    def _write(self, name: str, data: bytes, executable: bool) -> None:
        entry = zipfile.ZipInfo(name, _DATE)
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)

    def __enter__(self) -> WheelWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            name = f"{self.dist_info}/RECORD"
            self._write(name, "".join([*self._record, f"{_csv(name)},,\n"]).encode(), False)
        self._zip.close()
        if kind is None:
            os.replace(self._partial, self.path)
        else:
            self._partial.unlink()


def wheel_file(tags: str) -> bytes:
    """Content of the WHEEL file."""
    lines = (
        "Wheel-Version: 1.0",
        "Generator: sglang-spec vendoring",
        "Root-Is-Purelib: false",
        f"Tag: {tags}",
    )
    return ("\n".join(lines) + "\n").encode()


def _csv(name: str) -> str:
    return f'"{name}"' if "," in name else name
