"""Which interpreter and platform is this, and is there a wheel pinned for it?"""

from __future__ import annotations

import platform
import sys

from .errors import VendoringError
from .pin import Pin, PinnedWheel


def running_tag() -> str:
    """Wheel tag of the running interpreter, e.g. `cp311`."""
    short = {"cpython": "cp", "pypy": "pp"}.get(sys.implementation.name, sys.implementation.name)
    return f"{short}{sys.version_info.major}{sys.version_info.minor}"


def pinned_wheel(pin: Pin) -> PinnedWheel:
    """The wheel for the running interpreter; refuses another Python or platform by name."""
    here = (platform.system(), platform.machine())
    if here != (pin.system, pin.machine):
        raise VendoringError(
            f"no wheel of {pin.name} {pin.version} is pinned for platform {here[0]} {here[1]}",
            file="patches/upstream.toml",
            key="upstream.machine",
            value=" ".join(here),
            remedy=f"use {pin.system} {pin.machine} with one of {', '.join(pin.tags)}",
        )
    return pin.wheel(running_tag())


def any_wheel(pin: Pin, tag: str | None = None) -> PinnedWheel:
    """A wheel for work that imports nothing: the asked tag, else the running one, else the first
    pinned.
    """
    if tag is not None:
        return pin.wheel(tag)
    return pin.wheel(running_tag() if running_tag() in pin.tags else pin.tags[0])
