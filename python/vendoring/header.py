"""Patch headers: a subject, a description and DEP-3 style fields, the same text in a commit and in
a file.

A commit message (and a `--header` file) reads

    Subject in one line

    Description: why, the symptom, how to see it fail. Paragraphs `Motivation:`, `Modifications:`,
    `Accuracy:`, `Speed:` and `How to reproduce:`, each alone on its line, become the sections of
    the upstream mail.

    Slug: name-of-the-patch
    Category: fix
    ...

The last paragraph holds the fields. A value may go on in lines that begin with a space. `Test` and
`Bug` may be given several times.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from email.utils import format_datetime

from .errors import VendoringError

CATEGORIES = ("backport", "fix", "hardening", "instrumentation", "site")
REQUIRED = (
    "Slug",
    "Category",
    "Origin",
    "Bug",
    "Forwarded",
    "Applied-Upstream",
    "Last-Update",
    "Test",
    "Retire-When",
)
OPTIONAL = ("Depends", "Upstream-Checked")
KNOWN = REQUIRED + OPTIONAL
REPEATABLE = ("Test", "Bug")
SECTIONS = ("Motivation", "Modifications", "Accuracy", "Speed", "How to reproduce")
PLACEHOLDER = "TODO"
ZERO_FROM = f"From {'0' * 40} Mon Sep 17 00:00:00 2001"

_FIELD = re.compile(r"([A-Z][A-Za-z-]*):(?:\s+(.*))?$")
SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
AUTHOR = re.compile(r"([^<>]+) <([^<>\s]+@[^<>\s]+)>")


@dataclass(frozen=True)
class Header:
    """What a patch says about itself. `fields` keeps the order in which they are written."""

    subject: str
    author: str
    body: str
    fields: tuple[tuple[str, str], ...]

    def get(self, key: str) -> str:
        """First value of a field, an empty text where it is not given."""
        return next((value for name, value in self.fields if name == key), "")

    def all(self, key: str) -> tuple[str, ...]:
        return tuple(value for name, value in self.fields if name == key)

    @property
    def slug(self) -> str:
        return self.get("Slug")

    @property
    def category(self) -> str:
        return self.get("Category")

    @property
    def tests(self) -> tuple[str, ...]:
        """Node ids that fail without the patch."""
        return tuple(node for value in self.all("Test") for node in value.split())

    @property
    def depends(self) -> tuple[str, ...]:
        return tuple(name for name in re.split(r"[,\s]+", self.get("Depends")) if name)

    @property
    def date(self) -> datetime.datetime:
        """`Last-Update` at midnight UTC; raises a named error where it is not a date."""
        text = self.get("Last-Update")
        try:
            day = datetime.date.fromisoformat(text)
        except ValueError:
            raise VendoringError(
                f"the header of patch {self.slug or self.subject!r} has no usable date",
                key="Last-Update",
                value=text,
                remedy="write a date such as 2025-11-29",
            ) from None
        return datetime.datetime.combine(day, datetime.time(), datetime.UTC)

    @property
    def author_parts(self) -> tuple[str, str]:
        """Name and mail address."""
        match = AUTHOR.fullmatch(self.author)
        if match is None:
            raise VendoringError(
                f"the header of patch {self.slug or self.subject!r} has no usable author",
                key="From",
                value=self.author,
                remedy="write `Name <name@example.org>`",
            )
        return match[1], match[2]

    def sections(self) -> dict[str, str]:
        """Body split at the section titles; text before the first one is under an empty name."""
        found: dict[str, list[str]] = {"": []}
        current = found[""]
        for line in self.body.split("\n"):
            name = line.removesuffix(":")
            if line.endswith(":") and name in SECTIONS:
                current = found.setdefault(name, [])
            else:
                current.append(line)
        return {name: "\n".join(lines).strip("\n") for name, lines in found.items()}

    def message(self) -> str:
        """The text of the commit."""
        parts = [self.subject, self.body, "\n".join(self._field_lines())]
        return "\n\n".join(part for part in parts if part) + "\n"

    def mail_head(self) -> str:
        """The text of a `.patch` file before its diff, ending with the `---` line."""
        lines = [
            ZERO_FROM,
            f"From: {self.author}",
            f"Date: {format_datetime(self.date)}",
            f"Subject: {self.subject}",
        ]
        rest = [part for part in (self.body, "\n".join(self._field_lines())) if part]
        return "\n".join(lines) + "\n\n" + "\n\n".join(rest) + "\n---\n"

    def _field_lines(self) -> list[str]:
        return [f"{key}: " + value.replace("\n", "\n ") for key, value in self.fields]


def parse_message(text: str, author: str) -> Header:
    """Reads a commit message or a `--header` file. Unknown and doubled fields are errors."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").strip("\n").split("\n")]
    start = _field_start(lines)
    fields = _fields(lines[start:])
    body = "\n".join(lines[1:start]).strip("\n")
    return Header(lines[0].strip(), author, body, fields)


def parse_mail_head(text: str, where: str) -> Header:
    """Reads the part of a `.patch` file before its `---` line. `where` names the file in errors."""
    head, _, rest = text.partition("\n\n")
    values: dict[str, str] = {}
    for line in head.split("\n"):
        match = _FIELD.fullmatch(line)
        if match is not None:
            values[match[1]] = match[2] or ""
    for key in ("From", "Subject"):
        if not values.get(key):
            raise VendoringError(
                "the patch has no complete mail head",
                file=where,
                key=key,
                remedy=f"add `{key}: ...`",
            )
    try:
        return parse_message(values["Subject"] + "\n\n" + rest, values["From"])
    except VendoringError as fault:
        fault.file = fault.file or where
        raise


def template(slug: str, author: str, today: datetime.date) -> Header:
    """A header whose open fields say TODO, which `check` refuses."""
    given = {
        "Slug": slug,
        "Origin": "own",
        "Bug": "none",
        "Forwarded": "no",
        "Applied-Upstream": "no",
    }
    given["Last-Update"] = today.isoformat()
    fields = tuple((key, given.get(key, PLACEHOLDER)) for key in REQUIRED)
    return Header(PLACEHOLDER, author, PLACEHOLDER, fields)


def with_fields(header: Header, values: dict[str, tuple[str, ...]]) -> Header:
    """A copy in which the named fields have the given values, in the canonical order. An empty
    value takes the field out.
    """
    fields: list[tuple[str, str]] = []
    for key in KNOWN:
        fields += [(key, value) for value in values.get(key, header.all(key)) if value]
    return Header(header.subject, header.author, header.body, tuple(fields))


def _field_start(lines: list[str]) -> int:
    """Index of the first line of the last paragraph where that paragraph holds fields, else the
    end.
    """
    start = len(lines)
    while start > 1 and lines[start - 1]:
        start -= 1
    if start >= len(lines):
        return len(lines)
    match = _FIELD.fullmatch(lines[start])
    return start if match is not None and match[1] in KNOWN else len(lines)


def _fields(lines: list[str]) -> tuple[tuple[str, str], ...]:
    fields: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith((" ", "\t")) and fields:
            key, value = fields[-1]
            fields[-1] = (key, f"{value}\n{line.strip()}")
            continue
        match = _FIELD.fullmatch(line)
        if match is None:
            raise VendoringError(
                "a header field cannot be read", value=line, remedy="write `Key: value`"
            )
        key, value = match[1], match[2] or ""
        if key not in KNOWN:
            raise VendoringError(
                "the header has an unknown field", key=key, remedy=f"known: {', '.join(KNOWN)}"
            )
        if key not in REPEATABLE and any(name == key for name, _ in fields):
            raise VendoringError(
                "the header gives a field twice", key=key, remedy="keep one of them"
            )
        fields.append((key, value))
    return tuple(fields)
