"""`drop SLUG`: takes a patch out of the stack and leaves a line in `patches/retired.toml`."""

from __future__ import annotations

import datetime
import json
import tomllib

from .errors import VendoringError, text_of
from .export import Written, write_patches
from .gitrepo import BASE_REF
from .interpreter import any_wheel
from .layout import Layout
from .lock import locked
from .pin import Pin, read_pin
from .series import no_such_patch, read_series
from .stack import apply_loosely, exported, scratch
from .stamp import wanted
from .state import Condition, inspect
from .tree import refusal
from .wheel_cache import resolve_any

_HEAD = "# Patches that are no more, oldest first. Written by `python -m vendoring drop`.\n"


def drop(layout: Layout, slug: str, why: str, upstream: str) -> Written:
    """Removes a patch; `upstream` is the commit or version that made it needless, or empty.

    The later patches are written anew for the lines they now have. Raises a named error if one of
    them needs the dropped one.
    """
    pin = read_pin(layout.pin)
    with locked(layout.lock):
        patches = read_series(layout)
        state = inspect(layout, wanted(pin, any_wheel(pin), patches))
        if state.condition is Condition.EDITED:
            raise refusal(state)
        if slug not in {patch.slug for patch in patches}:
            raise no_such_patch([slug], [patch.slug for patch in patches])
        needing = [patch.slug for patch in patches if slug in patch.header.depends]
        if needing:
            raise VendoringError(
                "other patches depend on this one", key="Depends", value=", ".join(needing)
            )
        left = [patch for patch in patches if patch.slug != slug]
        with scratch(pin, resolve_any(pin)[1], left) as repo:
            for patch in left:
                apply_loosely(repo, patch)
            written = write_patches(layout, exported(repo, BASE_REF))
        _record(layout, pin, slug, why, upstream)
        return written


def read_retired(layout: Layout) -> list[dict[str, str]]:
    """Entries of the ledger, oldest first."""
    if not layout.retired.is_file():
        return []
    try:
        found = tomllib.loads(text_of(layout.retired)).get("retired", [])
    except tomllib.TOMLDecodeError as fault:
        raise VendoringError(
            "the ledger of retired patches is not TOML",
            file=layout.shown(layout.retired),
            value=str(fault),
            remedy="mend that line, or `git checkout` the file",
        ) from None
    return [dict(entry) for entry in found]


def _record(layout: Layout, pin: Pin, slug: str, why: str, upstream: str) -> None:
    old = text_of(layout.retired) if layout.retired.is_file() else _HEAD
    values = {
        "slug": slug,
        "last-version": pin.local_version,
        "date": datetime.date.today().isoformat(),
        "why": why,
        "upstream": upstream or "none",
    }
    # A JSON text is a TOML basic string.
    entry = "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()
    )
    layout.retired.write_text(f"{old}\n[[retired]]\n{entry}", encoding="utf-8")
