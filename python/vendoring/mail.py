"""One mail for upstream: what it holds, what its message says, and whether a purpose has one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .header import SECTIONS, ZERO_FROM, Header


@dataclass(frozen=True)
class Mail:
    """One purpose. `skipped` is the reason why there is no mail, `lacks` what its message has not
    got. `depends` are the mails it builds on, `after` those and all that these build on, in order.
    """

    slug: str
    file: str = ""
    depends: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    skipped: str = ""
    lacks: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        """Test files that it brings, by path in upstream's layout."""
        names = (Path(name) for name in self.files if name.startswith("test/"))
        return tuple(str(name) for name in names if name.match("test_*.py"))


def unsent_because(header: Header) -> str:
    """Why a purpose is not sent upstream, an empty text if it is."""
    forwarded, applied = header.get("Forwarded"), header.get("Applied-Upstream")
    if forwarded.startswith("not-needed"):
        return forwarded.removeprefix("not-needed").strip(" :;,") or "no reason given"
    if forwarded.startswith("no; after "):
        return f"not yet: {forwarded.removeprefix('no; ')}"
    if applied.split(";")[0].strip() not in ("", "no"):
        return f"upstream has it: {applied}"
    return ""


def mail_text(header: Header, depends: tuple[str, ...], diff: str) -> str:
    """The whole mail, as `git am` takes it."""
    lines = header.mail_head().split("\n")[:3]
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in _message(header).items() if text)
    if depends:
        body += f"\n\nDepends on: {', '.join(depends)}"
    assert lines[0] == ZERO_FROM
    return "\n".join(lines) + f"\nSubject: [PATCH] {header.subject}\n\n{body}\n---\n{diff}"


def _message(header: Header) -> dict[str, str]:
    sections = header.sections()
    message = {name: sections.get(name, "") for name in SECTIONS}
    message["Motivation"] = message["Motivation"] or sections[""]
    return message


def lacking(header: Header, brought: Iterable[str]) -> tuple[str, ...]:
    """What the message or the files that the mail brings have not got."""
    lacks = [name for name, text in _message(header).items() if not text]
    if not any(name.startswith("test/") for name in brought):
        lacks.append("a test in upstream's layout")
    return tuple(lacks)


def mails_data(mails: list[Mail]) -> list[dict[str, Any]]:
    return [asdict(mail) for mail in mails]


def mails_text(mails: list[Mail]) -> str:
    lines = []
    for mail in mails:
        if mail.skipped:
            lines.append(f"not sent  {mail.slug}: {mail.skipped}")
            continue
        after = f" (after {', '.join(mail.depends)})" if mail.depends else ""
        lines.append(f"mail      {mail.file}{after}")
        lines += [f"          {path}" for path in mail.files]
        lines += [f"          lacks: {name}" for name in mail.lacks]
    return "\n".join(lines)
