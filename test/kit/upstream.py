"""The plain pinned SGLang, unpatched, for tests that compare with it."""

from __future__ import annotations

from pathlib import Path

from vendoring import interpreter, wheel_cache
from vendoring.layout import checkout
from vendoring.pin import read_pin
from vendoring.unpack import unpack

ROOT = Path(__file__).resolve().parents[2]
MARK = ".whole"


def plain_tree(under: Path = ROOT / "build/plain") -> Path:
    """A folder that holds the unpatched package `sglang`; put it first on PYTHONPATH."""
    pin = read_pin(checkout().pin)
    wheel = interpreter.pinned_wheel(pin)
    folder = under.resolve() / wheel.sha256[:12]
    if not (folder / MARK).exists():
        unpack(wheel_cache.resolve(pin, wheel), folder / "sglang")
        (folder / MARK).touch()
    return folder
