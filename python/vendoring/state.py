"""What the vendored tree is right now, told without changing it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .gitrepo import APPLIED_REF, BASE_REF, GitRepo
from .layout import OWN_PACKAGE, Layout
from .stamp import Identity, identity_of, read_stamp


class Condition(StrEnum):
    """`current` needs nothing; all others but `edited` are made anew."""

    MISSING = "missing"  # no upstream file there
    HALF_MADE = "half-made"  # a run was cut off, or the stamp is gone
    UNKNOWN = "unknown"  # files without the git directory that could tell edits
    STALE = "stale"  # whole, but of another pin, interpreter or patch set
    EDITED = "edited"  # somebody's work is in it
    CURRENT = "current"


@dataclass(frozen=True)
class TreeState:
    """`edits` are paths with uncommitted changes, `unexported` subjects of commits that patches/
    lacks.
    """

    condition: Condition
    identity: Identity | None = None
    edits: tuple[str, ...] = ()
    unexported: tuple[str, ...] = ()
    operation: str = ""


def repo_of(layout: Layout) -> GitRepo:
    return GitRepo(layout.git_dir, layout.tree)


def has_upstream_files(layout: Layout) -> bool:
    """Is anything in the tree besides our own package and bytecode?"""
    if not layout.tree.is_dir():
        return False
    package, own = OWN_PACKAGE.split("/")
    for entry in layout.tree.iterdir():
        if entry.name == package:
            if any(child.name not in (own, "__pycache__") for child in entry.iterdir()):
                return True
        elif entry.name != "__pycache__":
            return True
    return False


def inspect(layout: Layout, wanted: Identity) -> TreeState:
    """Compares the tree with what is wanted and with its own git directory."""
    stamp = read_stamp(layout.stamp)
    identity = identity_of(stamp) if stamp is not None else None
    if not has_upstream_files(layout):
        return TreeState(Condition.MISSING)
    if layout.swap_mark.exists():
        return TreeState(Condition.HALF_MADE, identity)
    repo = repo_of(layout)
    applied = repo.resolve(APPLIED_REF) if layout.git_dir.is_dir() else None
    if applied is None or repo.resolve(BASE_REF) is None:
        return TreeState(Condition.UNKNOWN, identity)
    edits = tuple(repo.changes())
    unexported = () if repo.head() == applied else _unexported(repo)
    if edits or unexported or repo.operation():
        return TreeState(Condition.EDITED, identity, edits, unexported, repo.operation())
    if identity is None:
        return TreeState(Condition.HALF_MADE)
    return TreeState(Condition.CURRENT if identity == wanted else Condition.STALE, identity)


def _unexported(repo: GitRepo) -> tuple[str, ...]:
    """Subjects of the commits after what was last exported; after a rebase that is all of them."""
    ahead = repo.attempt("merge-base", "--is-ancestor", APPLIED_REF, "HEAD").returncode == 0
    commits = repo.commits(APPLIED_REF if ahead else BASE_REF)
    return tuple(commit.subject for commit in commits) or ("commits were dropped",)
