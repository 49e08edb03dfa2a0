"""Where things lie in a checkout. Everything that vendoring makes is under `python/.vendor` or
`python/sglang`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

STAMP_NAME = "_spec_pin.json"
OWN_PACKAGE = "srt/spec_hardening"  # inside the vendored tree, but in the project's own git


@dataclass(frozen=True)
class Layout:
    """Paths of one checkout, all derived from its root."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "python"

    @property
    def tree(self) -> Path:
        return self.python / "sglang"

    @property
    def own(self) -> Path:
        return self.tree / OWN_PACKAGE

    @property
    def stamp(self) -> Path:
        return self.tree / STAMP_NAME

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def series(self) -> Path:
        return self.patches / "series"

    @property
    def pin(self) -> Path:
        return self.patches / "upstream.toml"

    @property
    def retired(self) -> Path:
        return self.patches / "retired.toml"

    @property
    def table(self) -> Path:
        return self.patches / "README.md"

    @property
    def state(self) -> Path:
        return self.python / ".vendor"

    @property
    def git_dir(self) -> Path:
        return self.state / "git"

    @property
    def staging(self) -> Path:
        return self.state / "staging"

    @property
    def swap_mark(self) -> Path:
        """Present only while files are moved into place: what lies in the tree then is nobody's
        work.
        """
        return self.state / "swapping"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    def shown(self, path: Path) -> str:
        """`path` relative to the checkout where it lies inside it, for messages."""
        try:
            return str(path.relative_to(self.root))
        except ValueError:
            return str(path)


def checkout() -> Layout:
    """The checkout that this package lies in."""
    return Layout(Path(__file__).resolve().parents[2])


def wheel_cache_dir() -> Path:
    """User cache folder for upstream wheels (`XDG_CACHE_HOME`, else `~/.cache`)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sglang-spec" / "wheels"
