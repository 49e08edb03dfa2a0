"""Build backend hooks (PEP 517 and 660). `pip install -e python` and `pip install -e .` both enter
here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from .distribution import Distribution, describe, write_editable, write_wheel
from .errors import VendoringError, of_system
from .interpreter import pinned_wheel
from .layout import checkout
from .pin import read_pin
from .series import read_series
from .talk import say
from .tree import apply
from .wheel_cache import resolve

Settings = dict[str, Any] | None
_Result = TypeVar("_Result")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Nothing: this builds on hosts with no network."""
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Writes the `.dist-info` folder and gives its name."""
    return _plainly(lambda: _write_metadata(Path(metadata_directory), from_checkout=False))


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """The same for an installation that imports the checkout."""
    return _plainly(lambda: _write_metadata(Path(metadata_directory), from_checkout=True))


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Writes the wheel of the patched tree for this interpreter and gives its name."""

    def build() -> str:
        layout = checkout()
        pin = read_pin(layout.pin)
        wheel = pinned_wheel(pin)
        patches = read_series(layout)
        file = resolve(pin, wheel)
        return write_wheel(layout, pin, wheel, file, patches, Path(wheel_directory))[0].name

    return _plainly(build)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Makes `python/sglang`, then writes the wheel that points to it, and gives its name."""

    def build() -> str:
        layout = checkout()
        pin = read_pin(layout.pin)
        wheel = pinned_wheel(pin)
        apply(layout)
        return write_editable(layout, pin, wheel, resolve(pin, wheel), Path(wheel_directory)).name

    return _plainly(build)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> NoReturn:
    """Refused: a source archive would have to hold upstream's tree."""
    say("error: there is no source distribution; use `python -m vendoring wheel`")
    sys.exit(1)


def _write_metadata(folder: Path, from_checkout: bool) -> str:
    layout = checkout()
    pin = read_pin(layout.pin)
    wheel = pinned_wheel(pin)
    about: Distribution = describe(layout, pin, wheel, resolve(pin, wheel), from_checkout)
    for name, data in about.files:
        path = folder / about.dist_info / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return about.dist_info


def _plainly(work: Callable[[], _Result]) -> _Result:
    """Ends with the plain words of a finding instead of a traceback."""
    try:
        return work()
    except VendoringError as fault:
        say(f"error: {fault}")
    except OSError as refused:
        say(f"error: {of_system(refused)}")
    sys.exit(1)
