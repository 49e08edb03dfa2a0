"""Authoring: a new patch commit from the edits in the tree, and changes to one that exists."""

from __future__ import annotations

import datetime
from dataclasses import replace

from .errors import VendoringError
from .gitrepo import BASE_REF, Commit, GitRepo
from .header import SLUG, Header, parse_message, template, with_fields
from .layout import Layout
from .series import decode, no_such_patch
from .state import repo_of


def people_author(layout: Layout) -> str:
    """`Name <mail>` as the checkout's own git has it."""
    name, mail = repo_of(layout).person(layout.root)
    return f"{name} <{mail}>"


def new_patch(layout: Layout, slug: str, header: Header | None, paths: list[str]) -> Header:
    """Commits the edits (all, or those in `paths`) as one patch, and gives the header it has.

    Without a header the commit gets a template with TODO in it, which `check` refuses later.
    """
    if SLUG.fullmatch(slug) is None:
        raise VendoringError(
            "this cannot be the name of a patch",
            key="Slug",
            value=slug,
            remedy="use lower case words joined by hyphens, such as wider-default",
        )
    repo = _ready(layout)
    if any(_slug(commit) == slug for commit in repo.commits()):
        raise VendoringError(
            "a patch of this name exists",
            key="Slug",
            value=slug,
            remedy=f"python -m vendoring amend {slug}",
        )
    today = datetime.date.today()
    whole = template(slug, people_author(layout), today)
    whole = _merged(whole, header)
    _stage(repo, paths)
    repo.commit(whole.message(), whole.author_parts, whole.date.isoformat())
    return whole


def amend_patch(layout: Layout, slug: str, header: Header | None, paths: list[str]) -> Header:
    """Folds the edits into the patch `slug`, or gives it a new header, or both.

    The later patches are put on top again; where git cannot do that, the tree is left as it was.
    """
    repo = _ready(layout)
    commits = repo.commits()
    found = next((commit for commit in commits if _slug(commit) == slug), None)
    if found is None:
        raise no_such_patch([slug], filter(None, map(_slug, commits)))
    old = parse_message(found.message, found.author)
    edits = repo.changes()
    whole = old
    if edits or not _only_checked(header):
        whole = with_fields(old, {"Last-Update": (datetime.date.today().isoformat(),)})
    whole = _merged(whole, header)
    if not edits and header is None:
        raise VendoringError("there is nothing to amend: no edits and no header", value=slug)
    if edits:
        _fold(repo, found, paths)
    _reword(repo, slug, whole)
    return whole


def _only_checked(given: Header | None) -> bool:
    """Is all that is given the day when upstream was looked at? That is no update of the patch."""
    if given is None or given.subject or given.body or given.author:
        return False
    return {key for key, _ in given.fields} == {"Upstream-Checked"}


def _merged(base: Header, given: Header | None) -> Header:
    """`base` with every part that `given` has; the slug stays, and so does who made it unless
    `given` says otherwise.
    """
    if given is None:
        return base
    fields = {key: given.all(key) for key, _ in given.fields if key != "Slug"}
    merged = with_fields(base, fields)
    return replace(
        merged,
        subject=given.subject or base.subject,
        body=given.body or base.body,
        author=given.author or base.author,
    )


def _ready(layout: Layout) -> GitRepo:
    repo = repo_of(layout)
    if not layout.git_dir.is_dir() or repo.resolve(BASE_REF) is None:
        raise VendoringError("there is no vendored tree", remedy="python -m vendoring apply")
    if repo.operation():
        raise VendoringError(
            f"a {repo.operation()} is not finished",
            remedy=f"python -m vendoring git {repo.operation()} --continue (or --abort)",
        )
    return repo


def _slug(commit: Commit) -> str:
    try:
        return parse_message(commit.message, commit.author).slug
    except VendoringError:
        return ""  # a commit that a person is still writing; export names its fault


def _stage(repo: GitRepo, paths: list[str]) -> None:
    if not repo.changes():
        raise VendoringError(
            "there are no edits in the vendored tree to commit", file="python/sglang"
        )
    repo.run("add", "--all", "--", *(paths or ["."]))
    if repo.attempt("diff", "--cached", "--quiet").returncode == 0:
        raise VendoringError("the named paths have no edits", value=" ".join(paths))


def _fold(repo: GitRepo, into: Commit, paths: list[str]) -> None:
    before = repo.head()
    _stage(repo, paths)
    repo.commit(
        f"fixup! {into.id}\n", ("vendoring", "vendoring@localhost"), "2000-01-01T00:00:00+00:00"
    )
    done = repo.attempt(
        *("rebase", "--quiet", "--interactive", "--autosquash", "--autostash", BASE_REF),
        extra={"GIT_SEQUENCE_EDITOR": "true", "GIT_EDITOR": "true"},
    )
    if done.returncode != 0:
        words = decode(done.stderr).strip().splitlines()
        repo.attempt("rebase", "--abort")
        repo.run("reset", "--quiet", "--mixed", before)
        raise VendoringError(
            "a later patch changes the same lines, so git cannot fold the edits in by itself",
            value=words[0] if words else "",
            remedy="`python -m vendoring git commit`, then `git rebase -i refs/vendoring/base`",
        )


def _reword(repo: GitRepo, slug: str, header: Header) -> None:
    """Writes the commits from `slug` on anew with the same files, the one of `slug` with a new
    message.
    """
    parent = ""
    for commit in repo.commits():
        here = _slug(commit) == slug
        if not here and not parent:
            continue
        message = header.message() if here else commit.message
        name, mail = (header.author if here else commit.author).rstrip(">").split(" <")
        parent = parent or f"{commit.id}^"
        extra = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail}
        tree = f"{commit.id}^{{tree}}"
        parent = repo.run("commit-tree", tree, "-p", parent, feed=message, extra=extra).strip()
    repo.run("update-ref", "HEAD", parent)
