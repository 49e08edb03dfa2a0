"""Commands of a guide: those in its ```bash blocks, one a line."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(path: Path) -> list[str]:
    """In order; a line that ends in a backslash goes on in the next."""
    found = []
    for block in _BLOCK.findall(path.read_text(encoding="utf-8")):
        lines = block.replace("\\\n", " ").splitlines()
        found += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return found
