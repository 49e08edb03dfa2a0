"""What is missing or unusable in a patch header."""

from __future__ import annotations

import datetime
import re

from .header import AUTHOR, CATEGORIES, PLACEHOLDER, REQUIRED, SLUG, Header
from .retire import FORMS, parse_retire

_FORWARDED = re.compile(r"no\b(?!-)|not-needed\s+\S|https?://|TODO")


def header_faults(header: Header) -> list[str]:
    """Everything that makes a header incomplete or unusable, as short texts."""
    found = [f"{key} is missing" for key in REQUIRED if not header.get(key)]
    found += [
        f"{key} still says {PLACEHOLDER}" for key, value in header.fields if PLACEHOLDER in value
    ]
    if not header.subject or PLACEHOLDER in header.subject:
        found.append("Subject is missing")
    elif header.subject.lower().startswith("subject:"):
        found.append(f"Subject says what it is twice: {header.subject}")
    if not header.body.strip() or PLACEHOLDER in header.body:
        found.append("Description is missing")
    if AUTHOR.fullmatch(header.author) is None:
        found.append(f"Author is not `Name <mail>`: {header.author}")
    if header.category and header.category not in (*CATEGORIES, PLACEHOLDER):
        found.append(f"Category is none of {', '.join(CATEGORIES)}: {header.category}")
    if header.slug and SLUG.fullmatch(header.slug) is None:
        found.append(f"Slug is not lower case words joined by hyphens: {header.slug}")
    forwarded = header.get("Forwarded")
    if forwarded == "not-needed":
        found.append("Forwarded: not-needed gives no reason (write `not-needed REASON`)")
    elif forwarded and _FORWARDED.match(forwarded) is None:
        found.append(f"Forwarded is neither `no`, `not-needed REASON` nor a link: {forwarded}")
    retire = header.get("Retire-When")
    if retire and PLACEHOLDER not in retire and parse_retire(retire) is None:
        found.append(f"Retire-When is not one of {FORMS}: {retire}")
    for line in header.body.split("\n"):
        if line == "---" or line.startswith("diff --git "):
            found.append(f"Description has a line that would end the header: {line}")
    value = header.get("Last-Update")
    if value and value != PLACEHOLDER and not _is_date(value):
        found.append(f"Last-Update is not a date: {value}")
    found += _checked_faults(header.get("Upstream-Checked"))
    return found


def _checked_faults(value: str) -> list[str]:
    """A date alone says little: the place that was looked at goes with it."""
    date, _, where = value.partition(" ")
    if not value or PLACEHOLDER in value or (_is_date(date) and where.strip()):
        return []
    return [f"Upstream-Checked is not `DATE WHERE`, as in `2025-11-29 in 0.5.23`: {value}"]


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True
