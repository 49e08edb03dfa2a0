"""The one error type: what went wrong, where, with which value, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


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
