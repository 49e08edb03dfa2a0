"""`patches/README.md`: what each patch is for, generated from the headers."""

from __future__ import annotations

import re

from .series import Patch

_HEAD = """\
# Patches

Written by `python -m vendoring export` from the headers of the patches; edit those, not this file.
Checked: the day on which somebody looked whether upstream has the change by now, and where.

| patch | purpose | category | + / - | upstream | checked | test | retire when |
|---|---|---|---|---|---|---|---|
"""


def table_text(patches: tuple[Patch, ...]) -> str:
    """The whole file."""
    return _HEAD + "".join(_row(patch) for patch in patches)


def _row(patch: Patch) -> str:
    header = patch.header
    cells = (
        f"[{patch.slug}]({patch.slug}.patch)",
        header.subject,
        header.category,
        f"{patch.added} / {patch.removed}",
        upstream_status(patch),
        header.get("Upstream-Checked") or "no",
        " ".join(f"`{node}`" for node in header.tests),
        header.get("Retire-When"),
    )
    return "| " + " | ".join(cell.replace("\n", " ").replace("|", "\\|") for cell in cells) + " |\n"


def upstream_status(patch: Patch) -> str:
    """Where the change stands upstream, in one phrase."""
    applied = patch.header.get("Applied-Upstream")
    if applied not in ("", "no"):
        return f"in {applied}"
    forwarded = patch.header.get("Forwarded")
    return "not sent" if re.match(r"no\b(?!-)", forwarded) else forwarded
