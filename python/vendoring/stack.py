"""A series on top of upstream files, one commit per patch, in any repository: the tree, or a small
scratch one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .diff import Misfit, misfits
from .errors import VendoringError
from .gitrepo import Commit, GitRepo
from .header import parse_message
from .pin import Pin
from .series import Patch, decode, make_patch, touched_paths
from .unpack import unpack


def base_message(pin: Pin) -> str:
    return f"{pin.name} {pin.version} as released\n"


def patch_misfits(patch: Patch, tree: Path) -> list[Misfit]:
    """Every hunk of `patch` that does not fit `tree` at its very lines."""
    found: list[Misfit] = []
    for change in patch.files:
        path = tree / change.path
        found += misfits(change, decode(path.read_bytes()) if path.is_file() else None)
    return found


def apply_exactly(repo: GitRepo, patch: Patch) -> None:
    """Applies and commits one patch with no fuzz and no offset; an error names patch, file and
    hunk.
    """
    bad = patch_misfits(patch, repo.work_tree)
    if bad:
        first = bad[0]
        kind = "does not apply" if first.offset is None else "applies only with an offset"
        raise VendoringError(
            f"patch {patch.slug} {kind}: {first.path}, hunk {first.hunk}",
            file=f"patches/{patch.slug}.patch",
            key=f"{first.path}, hunk {first.hunk}",
            value=first.detail,
            remedy="apply it by hand on the tree of the patches before it, commit, and export",
        )
    apply_loosely(repo, patch)


def apply_loosely(repo: GitRepo, patch: Patch) -> None:
    """Applies and commits one patch as git sees fit, offsets allowed, fuzz not."""
    done = repo.attempt("apply", "--index", "--whitespace=nowarn", "-", feed=patch.diff)
    if done.returncode != 0:
        raise VendoringError(
            f"patch {patch.slug} does not apply",
            file=f"patches/{patch.slug}.patch",
            value=decode(done.stderr).strip(),
        )
    commit_patch(repo, patch)


def commit_patch(repo: GitRepo, patch: Patch) -> None:
    """Commits what is in the index under the patch's header, at the date the header gives."""
    date = patch.header.date.isoformat()
    repo.commit(patch.header.message(), patch.header.author_parts, date)


def applies_again(repo: GitRepo, patch: Patch) -> bool:
    """Would git apply this patch a second time, even somewhere else in its files?"""
    return repo.attempt("apply", "--check", "-", feed=patch.diff).returncode == 0


def exported(repo: GitRepo, since: str) -> tuple[Patch, ...]:
    """The commits after `since` as patches, in order: what `patches/` has to hold."""
    found: list[Patch] = []
    for commit in repo.commits(since):
        try:
            header = parse_message(commit.message, commit.author)
            if not header.slug:
                raise _nameless(commit)
            diff = repo.diff(commit.id)
            if not diff:
                raise VendoringError(
                    f"patch {header.slug} changes nothing", remedy="drop the commit"
                )
            found.append(make_patch(header.slug, header.mail_head() + diff))
        except VendoringError as fault:
            fault.file = fault.file or f"commit {commit.id[:12]} ({commit.subject})"
            fault.remedy = fault.remedy or "python -m vendoring git rebase -i refs/vendoring/base"
            raise
    names = [patch.slug for patch in found]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise VendoringError(
            "two commits have the same Slug",
            key="Slug",
            value=", ".join(doubled),
            remedy="squash or rename: python -m vendoring git rebase -i refs/vendoring/base",
        )
    return tuple(found)


def _nameless(commit: Commit) -> VendoringError:
    last = commit.message.strip("\n").rsplit("\n\n", 1)[-1].split("\n", 1)[0]
    stray = any(line.startswith("Slug:") for line in commit.message.split("\n"))
    return VendoringError(
        "the commit names no patch: the last paragraph of its message has no field `Slug`",
        key="Slug",
        value=f"that paragraph begins {last!r}"
        + ("; a paragraph of fields has nothing but fields in it" if stray else ""),
        remedy="end its message with an empty line and `Slug: name-of-the-patch` (and the other "
        "fields): `python -m vendoring git commit --amend` for the last commit, "
        "`python -m vendoring git rebase -i refs/vendoring/base` with `reword` for an earlier one",
    )


@contextmanager
def scratch(
    pin: Pin, wheel: Path, patches: Iterable[Patch], prefix: str = "", base: bool = True
) -> Iterator[GitRepo]:
    """A throw-away repository with only those upstream files that `patches` touch, and nothing
    applied.

    `prefix` is the folder that stands for `sglang/` in it (upstream's own layout has
    `python/sglang/`). Without `base` the files are there and nothing is committed.
    """
    with TemporaryDirectory(prefix="sglang-spec-") as folder:
        repo = GitRepo(Path(folder) / "git", Path(folder) / "tree")
        repo.work_tree.mkdir()
        unpack(wheel, repo.work_tree / prefix, touched_paths(tuple(patches)))
        repo.init()
        if base:
            repo.commit_base(base_message(pin))
        yield repo
