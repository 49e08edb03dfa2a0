"""`refresh`: re-anchors patches whose neighbours moved, as after a merge of two stacks.

Applying is strict: no offset, no fuzz. When two people add patches at the same time, the second
one's lines have moved, nothing more. This redoes each patch on those before it, says which ones had
to move, and writes them as an export would. It works in a scratch repository: the tree and its
edits are not touched, and a patch that really conflicts ends it with nothing written.
"""

from __future__ import annotations

from typing import NamedTuple

from . import stack
from .errors import VendoringError
from .export import write_patches
from .gitrepo import BASE_REF, GitRepo
from .interpreter import any_wheel
from .layout import Layout
from .pin import read_pin
from .series import Patch, decode, read_series
from .wheel_cache import resolve

# With one line of context on each side git still finds the one place, or refuses.
_LEAST_CONTEXT = "-C1"


class Refreshed(NamedTuple):
    """Slugs of patches that had to move, and those whose context had changed as well."""

    moved: tuple[str, ...]
    loose: tuple[str, ...]
    written: tuple[str, ...]


def refresh(layout: Layout) -> Refreshed:
    """Rewrites `patches/` so that every patch applies exactly again.

    Raises:
        VendoringError: a patch conflicts with one before it; names patch and place.
    """
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    moved: list[str] = []
    loose: list[str] = []
    with stack.scratch(pin, resolve(pin, any_wheel(pin)), patches) as repo:
        for patch in patches:
            if not stack.patch_misfits(patch, repo.work_tree):
                stack.apply_exactly(repo, patch)
            elif _applies(repo, patch):
                stack.apply_loosely(repo, patch)
                moved.append(patch.slug)
            else:
                _apply_with_less_context(repo, patch)
                loose.append(patch.slug)
        written = write_patches(layout, stack.exported(repo, BASE_REF))
    return Refreshed(tuple(moved), tuple(loose), written.changed)


def _applies(repo: GitRepo, patch: Patch) -> bool:
    return repo.attempt("apply", "--check", "--index", "-", feed=patch.diff).returncode == 0


def _apply_with_less_context(repo: GitRepo, patch: Patch) -> None:
    done = repo.attempt(
        "apply", "--index", "--whitespace=nowarn", _LEAST_CONTEXT, "-", feed=patch.diff
    )
    if done.returncode != 0:
        raise VendoringError(
            f"patch {patch.slug} conflicts with a patch before it",
            file=f"patches/{patch.slug}.patch",
            value=decode(done.stderr).strip(),
            remedy="take it out of the series, apply the rest, redo its edits in the tree, `new`",
        )
    stack.commit_patch(repo, patch)
