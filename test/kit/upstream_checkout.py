"""A checkout in upstream's layout with the files of the pinned wheel, as a maintainer has one."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_IDENTITY = ("-c", "user.name=A Maintainer", "-c", "user.email=maintainer@example.org")


@dataclass(frozen=True)
class Checkout:
    """A git work tree whose first commit, tagged `base`, is plain upstream."""

    folder: Path

    @property
    def package(self) -> Path:
        """What goes on the import path."""
        return self.folder / "python"

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *_IDENTITY, "-C", str(self.folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def reset(self) -> None:
        """Back to plain upstream, whatever an earlier run left."""
        if (self.folder / ".git" / "rebase-apply").exists():
            self.git("am", "--abort")
        self.git("reset", "--quiet", "--hard", "base")
        self.git("clean", "-fdq")

    def take(self, *mails: Path) -> None:
        """Applies mails as they are sent, in this order: no fuzz, no three-way merge."""
        self.git("am", "--quiet", *map(str, mails))

    def changed(self, kinds: str) -> list[str]:
        """Paths that differ from plain upstream, by kind: `A` new, `M` edited."""
        text = self.git("diff", "--name-only", f"--diff-filter={kinds}", "base", "HEAD")
        return text.splitlines()
