"""The interpreters of this host, by the tag of the wheels that are for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path


def interpreters(tags: Iterable[str]) -> dict[str, str]:
    """An interpreter for each tag, such as `cp312`, that this host has one for."""
    found = {}
    for tag in tags:
        name = f"python{tag[2]}.{tag[3:]}"
        for path in [shutil.which(name), *Path.home().glob(f".pyenv/versions/*/bin/{name}")]:
            # A version manager's shim may be there and not run.
            if path and subprocess.run([path, "-V"], capture_output=True).returncode == 0:
                found[tag] = str(path)
                break
    return found
