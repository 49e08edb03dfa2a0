"""`refresh`: re-anchors patches whose neighbours moved, as after a merge of two stacks.

Applying is strict: no offset, no fuzz. When two people add patches at the same time, the second
one's lines have moved, nothing more. This redoes each patch on those before it, says which ones had
to move, and writes them as an export would. It works in a scratch repository: the tree and its
edits are not touched, and a patch that really conflicts ends it with nothing written.
"""

from __future__ import annotations

from typing import NamedTuple

from . import stack
from .diff import places
from .errors import VendoringError
from .export import write_patches
from .gitrepo import BASE_REF, GitRepo
from .interpreter import any_wheel
from .layout import Layout
from .pin import read_pin
from .series import Patch, decode, read_series
from .wheel_cache import resolve

_LEAST_CONTEXT = 1  # lines on each side that git has to find again


class Refreshed(NamedTuple):
    """Slugs of patches that had to move, and those of them that a person has to read again."""

    moved: tuple[str, ...]
    loose: tuple[str, ...]
    written: tuple[str, ...]


def refresh(layout: Layout) -> Refreshed:
    """Rewrites `patches/` so that every patch applies exactly again.

    A patch is loose where lines around it had changed, or where it would fit in other places too.

    Raises:
        VendoringError: a patch conflicts with one before it; names patch and place.
    """
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    moved: list[str] = []
    loose: list[str] = []
    with stack.scratch(pin, resolve(pin, any_wheel(pin)), patches) as repo:
        for patch in patches:
            bad = stack.patch_misfits(patch, repo.work_tree)
            if not bad:
                stack.apply_exactly(repo, patch)
                continue
            changed = any(misfit.offset is None for misfit in bad)
            certain = not changed and _fits_once(repo, patch)
            _apply_somewhere(repo, patch)
            (moved if certain else loose).append(patch.slug)
        written = write_patches(layout, stack.exported(repo, BASE_REF))
    return Refreshed(tuple(moved), tuple(loose), written.changed)


def _apply_somewhere(repo: GitRepo, patch: Patch) -> None:
    """With all its context if git can, else with one line of it where that is one place only."""
    apply = ("apply", "--index", "--whitespace=nowarn")
    if repo.attempt(*apply, "-", feed=patch.diff).returncode != 0:
        if not _fits_once(repo, patch, _LEAST_CONTEXT):
            raise _conflict(patch, "the little context that is left fits in several places")
        done = repo.attempt(*apply, f"-C{_LEAST_CONTEXT}", "-", feed=patch.diff)
        if done.returncode != 0:
            raise _conflict(patch, decode(done.stderr).strip())
    stack.commit_patch(repo, patch)


def _fits_once(repo: GitRepo, patch: Patch, context: int | None = None) -> bool:
    """Is there at most one place for each hunk? git takes the nearest of several."""
    for change in patch.files:
        path = repo.work_tree / change.path
        text = decode(path.read_bytes()) if path.is_file() else ""
        if any(len(places(hunk, text, context)) > 1 for hunk in change.hunks):
            return False
    return True


def _conflict(patch: Patch, detail: str) -> VendoringError:
    return VendoringError(
        f"patch {patch.slug} conflicts with a patch before it",
        file=f"patches/{patch.slug}.patch",
        value=detail,
        remedy="take it out of the series, apply the rest, redo its edits in the tree, `new`",
    )
