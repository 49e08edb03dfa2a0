"""The patch series: `patches/series` and the `.patch` files it names."""

from __future__ import annotations

import difflib
import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .diff import FileDiff, parse_diff
from .errors import VendoringError, text_of
from .header import SLUG, Header, parse_mail_head
from .layout import Layout

_SUFFIX = ".patch"


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
    if not mark and "\n---\r\n" in text:
        raise VendoringError(
            "the patch has Windows line ends (CRLF), so it cannot fit a line of upstream",
            file=where,
            remedy="`git config core.autocrlf false`, then `git checkout` the file anew; "
            "or `sed -i 's/\\r$//'` on it",
        )
    if not mark:
        raise VendoringError(
            "the patch has no `---` line between header and diff",
            file=where,
            remedy="write patches with `python -m vendoring export`, not by hand",
        )
    return Patch(slug, text, parse_mail_head(head, where), diff, parse_diff(diff, where))


def series_names(text: str) -> list[str]:
    """The slugs in a series file, in order. A line is `SLUG.patch` as quilt writes it, a comment
    (first character `#`), or empty; anything else is an error that names the line.
    """
    return [name for name in map(_entry, text.splitlines(), itertools.count(1)) if name]


def _entry(line: str, number: int) -> str:
    """The slug that a line of the series names, empty for a comment."""
    if not line.strip() or line.startswith("#"):
        return ""
    if line.endswith(_SUFFIX) and SLUG.fullmatch(line.removesuffix(_SUFFIX)):
        return line.removesuffix(_SUFFIX)
    bare = SLUG.fullmatch(line) is not None
    raise VendoringError(
        f"line {number} of the series names a patch without {_SUFFIX}, the form before quilt's"
        if bare
        else f"line {number} of the series is no file name of a patch",
        file="patches/series",
        key=f"line {number}",
        value=line,
        remedy="end each name in .patch: sed -i -E 's/^[a-z0-9-]+$/&.patch/' patches/series; "
        "then leave one line a patch"
        if bare
        else "one file name a line, NAME.patch, from its first column on, comments on lines of "
        "their own",
    )


def read_series(layout: Layout) -> tuple[Patch, ...]:
    """Every patch in order. A missing file or a name given twice is an error."""
    try:
        names = series_names(text_of(layout.series))
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


def no_such_patch(names: Iterable[str], known: Iterable[str]) -> VendoringError:
    """The error for names of no patch: it shows those that are like them."""
    slugs = list(known)
    wrong = list(names)
    like = [near for name in wrong for near in difflib.get_close_matches(name, slugs, 3)]
    return VendoringError(
        "there is no patch of this name",
        file="patches/series",
        key="Slug",
        value=", ".join(wrong),
        remedy=(f"did you mean {', '.join(dict.fromkeys(like))}? " if like else "")
        + "`python -m vendoring status` lists them",
    )


def dependents(patch: Patch, patches: tuple[Patch, ...]) -> tuple[str, ...]:
    """The patch and every one that cannot stand without it, in series order."""
    gone = {patch.slug}
    for other in patches:
        if gone & set(other.header.depends):
            gone.add(other.slug)
    return tuple(other.slug for other in patches if other.slug in gone)


def touched_paths(patches: tuple[Patch, ...]) -> tuple[str, ...]:
    """Every path that any patch changes, sorted."""
    return tuple(sorted({path for patch in patches for path in patch.paths}))


def series_text(old: str, names: list[str]) -> str:
    """A series file for the slugs `names` that keeps the comments of `old`.

    The comments above an entry move with it; those above an entry that is gone go to the next one
    left.
    """
    above: dict[str, list[str]] = {}
    pending: list[str] = []
    for line in old.splitlines():
        name = line.strip().removesuffix(_SUFFIX)
        if not name or name.startswith("#"):
            pending.append(line.rstrip())
        elif name in names:
            above[name] = pending
            pending = []
    lines: list[str] = []
    for name in names:
        lines += [*above.get(name, []), name + _SUFFIX]
    # Comments above nothing: the head of a series that was empty, or the tail of one that is not.
    lines = pending + lines if not above else lines + pending
    return "\n".join(lines).strip("\n") + "\n"
