"""A git repository whose directory lies outside its work tree."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import VendoringError, of_system
from .layout import OWN_PACKAGE, STAMP_NAME
from .series import decode, encode

BASE_REF = "refs/vendoring/base"
APPLIED_REF = "refs/vendoring/applied"  # the commit that equals patches/
_IDENTITY = ("vendoring", "vendoring@localhost")
_EXCLUDED = f"/{OWN_PACKAGE}/\n/{STAMP_NAME}\n__pycache__/\n*.pyc\n"

# trustctime: moving the tree into place changes that time. commentChar: a description may have `#`
# lines.
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tlooseCompression = 1
\ttrustctime = false
\tautocrlf = false
\tcommentChar = ";"
[gc]
\tauto = 0
[rebase]
\tautoSquash = true
"""

# What decides how a diff looks is set here, so that no user configuration can change an exported
# byte.
_DIFF = (
    *(
        "diff-tree",
        "-p",
        "--full-index",
        "--no-renames",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
    ),
    *("--diff-algorithm=myers", "--indent-heuristic", "--unified=3", "--inter-hunk-context=0"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-commit-id", "-r"),
)


@dataclass(frozen=True)
class Commit:
    """One patch as a commit: id, `Name <mail>`, whole message."""

    id: str
    author: str
    message: str

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]


@dataclass(frozen=True)
class GitRepo:
    """Runs git with an explicit directory and work tree, blind to the caller's git settings."""

    git_dir: Path
    work_tree: Path

    def person(self, checkout: Path) -> tuple[str, str]:
        """Name and mail that the checkout's own git uses for commits, a neutral pair where none is
        set.
        """
        found = []
        for key in ("user.name", "user.email"):
            done = subprocess.run(
                ["git", "-C", str(checkout), "config", key], capture_output=True, check=False
            )
            found.append(decode(done.stdout).strip())
        return (found[0], found[1]) if all(found) else _IDENTITY

    def environment(self) -> dict[str, str]:
        """For people's own git commands: their configuration, this repository."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        kept |= {key: value for key, value in os.environ.items() if key in _PASSED_ON}
        return kept | {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.work_tree)}

    def run(self, *args: str, feed: str = "", extra: dict[str, str] | None = None) -> str:
        """Runs one git command and gives its output; a failure is an error with git's words."""
        done = self.attempt(*args, feed=feed, extra=extra)
        if done.returncode != 0:
            raise VendoringError(
                f"git {args[0]} failed",
                file=str(self.git_dir),
                value=decode(done.stderr).strip() or decode(done.stdout).strip(),
            )
        return decode(done.stdout)

    def attempt(
        self, *args: str, feed: str = "", extra: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Like `run`, without judging the exit status."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        env |= {
            "GIT_DIR": str(self.git_dir),
            "GIT_WORK_TREE": str(self.work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            "GIT_COMMITTER_NAME": _IDENTITY[0],
            "GIT_COMMITTER_EMAIL": _IDENTITY[1],
        }
        try:
            return subprocess.run(
                ["git", "-c", "core.attributesFile=/dev/null", *args],
                input=encode(feed),
                capture_output=True,
                env=env | (extra or {}),
                cwd=self.work_tree if self.work_tree.is_dir() else None,
                check=False,
            )
        except FileNotFoundError as fault:
            raise of_system(fault) from None

    def init(self) -> None:
        """Makes an empty repository with settings that do not depend on the host."""
        self.git_dir.parent.mkdir(parents=True, exist_ok=True)
        self.run("init", "--quiet", "--initial-branch=patched", "--template=")
        (self.git_dir / "config").write_text(_CONFIG, encoding="utf-8")
        (self.git_dir / "info").mkdir(exist_ok=True)
        (self.git_dir / "info" / "exclude").write_text(_EXCLUDED, encoding="utf-8")

    def commit_base(self, message: str) -> None:
        """Commits all files as the upstream base. Same files and message, same id."""
        self.run("add", "--all", "--force")
        self.commit(message, _IDENTITY, "2000-01-01T00:00:00+00:00")
        self.run("update-ref", BASE_REF, "HEAD")

    def commit(self, message: str, author: tuple[str, str], date: str) -> None:
        """Commits the index as it stands, at a fixed date."""
        extra = {
            "GIT_AUTHOR_NAME": author[0],
            "GIT_AUTHOR_EMAIL": author[1],
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_DATE": date,
        }
        flags = ("--quiet", "--no-verify", "--allow-empty", "--cleanup=verbatim", "--file=-")
        self.run("commit", *flags, feed=message, extra=extra)

    def head(self) -> str:
        return self.run("rev-parse", "HEAD").strip()

    def resolve(self, name: str) -> str | None:
        """Object id of a revision, None where there is none."""
        done = self.attempt("rev-parse", "--verify", "--quiet", name)
        return decode(done.stdout).strip() if done.returncode == 0 else None

    def commits(self, since: str = BASE_REF) -> list[Commit]:
        """Commits after `since`, oldest first. A merge is an error, as a series has none."""
        text = self.run(
            "log", "--reverse", "-z", "--format=%H%n%P%n%an <%ae>%n%B", f"{since}..HEAD"
        )
        found: list[Commit] = []
        for entry in filter(None, text.split("\0")):
            commit, parents, author, message = entry.split("\n", 3)
            if " " in parents:
                raise VendoringError(
                    "the vendored history has a merge",
                    value=commit,
                    remedy="rebase: patches are a row",
                )
            found.append(Commit(commit, author, message))
        return found

    def diff(self, commit: str) -> str:
        """What one commit changes, byte by byte the same on every machine."""
        return self.run(*_DIFF, f"{commit}^", commit)

    def changes(self) -> list[str]:
        """Paths with uncommitted changes, new files included."""
        text = self.run("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
        return sorted(entry[3:] for entry in text.split("\0") if entry)

    def operation(self) -> str:
        """Name of a git operation that waits to be finished, empty if there is none."""
        waiting = {
            "rebase-merge": "rebase",
            "rebase-apply": "rebase",
            "CHERRY_PICK_HEAD": "cherry-pick",
        }
        return next((name for mark, name in waiting.items() if (self.git_dir / mark).exists()), "")


def listed(checkout: Path, *what: str) -> list[Path]:
    """Files that `git ls-files` names in the project's own checkout; `what` are its arguments."""
    command = ["git", "-C", str(checkout), "ls-files", "-z", *what]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        words = [line for line in decode(done.stderr).splitlines() if line.strip()]
        raise VendoringError(
            "git cannot list the files of this checkout",
            file=str(checkout),
            value=words[0] if words else f"git ended with {done.returncode}",
            remedy="see what `git status` says there",
        )
    return [checkout / name for name in filter(None, decode(done.stdout).split("\0"))]


# A person's editor and identity hold for `python -m vendoring git`; a foreign GIT_DIR or index does
# not.
_PASSED_ON = frozenset(
    f"GIT_{name}"
    for name in (
        *("EDITOR", "SEQUENCE_EDITOR", "PAGER", "SSH", "SSH_COMMAND", "TRACE", "CONFIG_GLOBAL"),
        *(
            "AUTHOR_NAME",
            "AUTHOR_EMAIL",
            "AUTHOR_DATE",
            "COMMITTER_NAME",
            "COMMITTER_EMAIL",
            "COMMITTER_DATE",
        ),
    )
)
