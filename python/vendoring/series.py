"""The patch series: `patches/series` and the `.patch` files it names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .diff import FileDiff, parse_diff
from .errors import VendoringError
from .header import Header, parse_mail_head
from .layout import Layout


@dataclass(frozen=True)
class Patch:
    """One purpose: its header, its diff, and the bytes of the file that holds both."""

    slug: str
    text: str
    header: Header
    diff: str
    files: tuple[FileDiff, ...]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(encode(self.text)).hexdigest()

    @property
    def added(self) -> int:
        return sum(change.added for change in self.files)

    @property
    def removed(self) -> int:
        return sum(change.removed for change in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(change.path for change in self.files)


def encode(text: str) -> bytes:
    """Bytes of patch text; upstream files need not be valid UTF-8, hence the escape."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def make_patch(slug: str, text: str) -> Patch:
    """Reads the text of a `.patch` file."""
    where = f"patches/{slug}.patch"
    head, mark, diff = text.partition("\n---\n")
    if not mark:
        raise VendoringError(
            "the patch has no `---` line between header and diff",
            file=where,
            remedy="write patches with `python -m vendoring export`, not by hand",
        )
    return Patch(slug, text, parse_mail_head(head, where), diff, parse_diff(diff, where))


def series_names(text: str) -> list[str]:
    """The names in a series file, in order; comments and empty lines left out."""
    stripped = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [name for name in stripped if name]


def read_series(layout: Layout) -> tuple[Patch, ...]:
    """Every patch in order. A missing file or a name given twice is an error."""
    try:
        names = series_names(layout.series.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise VendoringError(
            "the series file is missing", file=layout.shown(layout.series)
        ) from None
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise VendoringError(
            "the series names a patch twice", file="patches/series", value=", ".join(doubled)
        )
    return tuple(
        make_patch(name, read_patch_text(layout.patches / f"{name}.patch")) for name in names
    )


def read_patch_text(path: Path) -> str:
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        raise VendoringError(
            "the series names a patch that does not exist",
            file="patches/series",
            value=path.stem,
            remedy=f"add patches/{path.name} or take the name out of the series",
        ) from None


def patch_set_hash(patches: tuple[Patch, ...]) -> str:
    """One sha256 for names, order and bytes of all patches."""
    lines = "".join(f"{patch.slug} {patch.sha256}\n" for patch in patches)
    return hashlib.sha256(lines.encode()).hexdigest()


def touched_paths(patches: tuple[Patch, ...]) -> tuple[str, ...]:
    """Every path that any patch changes, sorted."""
    return tuple(sorted({path for patch in patches for path in patch.paths}))


def series_text(old: str, names: list[str]) -> str:
    """A series file for `names` that keeps the comments of `old`.

    The comments above an entry move with it; those above an entry that is gone go to the next one
    left.
    """
    above: dict[str, list[str]] = {}
    pending: list[str] = []
    for line in old.splitlines():
        name = line.split("#", 1)[0].strip()
        if not name:
            pending.append(line.rstrip())
        elif name in names:
            above[name] = pending
            pending = []
    lines: list[str] = []
    for name in names:
        lines += [*above.get(name, []), name]
    # Comments above nothing: the head of a series that was empty, or the tail of one that is not.
    lines = pending + lines if not above else lines + pending
    return "\n".join(lines).strip("\n") + "\n"
