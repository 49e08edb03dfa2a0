"""The one error type: what went wrong, where, with which value, and what to do about it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(eq=False)
class VendoringError(Exception):
    """A named finding that stops a command; the command line prints it and exits with 1.

    `file`, `key` and `value` say where the fault is (any may be empty), `remedy` what to type or
    write.
    """

    what: str
    file: str = ""
    key: str = ""
    value: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        lines = [self.what]
        named = (("file", self.file), ("key", self.key), ("value", self.value))
        lines += [f"  {name}: {text}" for name, text in named if text]
        if self.remedy:
            lines.append(f"  what to do: {self.remedy}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, str]:
        """Field name to text, for `--json`."""
        return {
            "what": self.what,
            "file": self.file,
            "key": self.key,
            "value": self.value,
            "remedy": self.remedy,
        }


def of_system(fault: OSError) -> VendoringError:
    """What the operating system refused, with the file it was about. The command line turns every
    such fault into one of these: a folder that cannot be written is no fault of the program.
    """
    if fault.filename == "git":
        return VendoringError("git is not installed", remedy="install git and run again")
    names = [os.fsdecode(name) for name in (fault.filename, fault.filename2) if name is not None]
    return VendoringError(
        f"the operating system refused: {fault.strerror or fault}",
        file=", ".join(names),
        remedy="name another path, or mend this one (is it there, a file or a folder as it should "
        "be, readable and writable for this user, with room on its disk?)",
    )


def text_of(path: Path, remedy: str = "write it anew as UTF-8 text") -> str:
    """A text file of the project. Raises a named error for one that is not UTF-8; a file that is
    not there is the caller's to tell.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as fault:
        raise VendoringError(
            "the file is no UTF-8 text", file=str(path), value=str(fault), remedy=remedy
        ) from None
