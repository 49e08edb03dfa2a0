"""Commands of a guide: those in its ```bash blocks, one a line, and after `$ ` in ```console."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


def commands(path: Path) -> list[str]:
    """In order; a line that ends in a backslash goes on in the next."""
    found = []
    for kind, block in _BLOCK.findall(path.read_text(encoding="utf-8")):
        lines = block.replace("\\\n", " ").splitlines()
        if kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return found


def mentions(path: Path, program: str) -> list[str]:
    """What is said of a program within the text, `program …`, without what stands for the rest."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    inline = [one for one in _INLINE.findall(text) if one.startswith(f"{program} ")]
    return [re.sub(r" …$| …(?= )", "", one) for one in inline]
