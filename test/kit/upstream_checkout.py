"""A checkout in upstream's layout with the files of the pinned wheel, as a maintainer has one."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from vendoring import interpreter, wheel_cache
from vendoring.layout import checkout
from vendoring.pin import read_pin
from vendoring.unpack import unpack

# Bytecode is no change, and the runner of the tests leaves it behind.
_EXCLUDED = "__pycache__/\n*.pyc\n"
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

    def take(self, mail: Path) -> None:
        """Applies one mail as it is sent: no fuzz, no three-way merge."""
        self.git("am", "--quiet", str(mail))

    def changed(self, kinds: str) -> list[str]:
        """Paths that differ from plain upstream, by kind: `A` new, `M` edited."""
        text = self.git("diff", "--name-only", f"--diff-filter={kinds}", "base", "HEAD")
        return text.splitlines()

    def revert_edits(self) -> None:
        """Upstream's own files as they were; what the mails brought stays."""
        self.git("checkout", "--quiet", "base", "--", *self.changed("M"))


def upstream_checkout(under: Path) -> Checkout:
    """A clean checkout in `under`, made once for each pin."""
    pin = read_pin(checkout().pin)
    wheel = interpreter.any_wheel(pin)
    made = Checkout(under.resolve() / f"upstream-{wheel.sha256[:12]}")
    if not (made.folder / ".git" / "refs" / "tags" / "base").exists():
        unpack(wheel_cache.resolve(pin, wheel), made.package / "sglang")
        made.git("init", "--quiet", "--initial-branch=main")
        (made.folder / ".git" / "info" / "exclude").write_text(_EXCLUDED)
        made.git("add", "--all", "--force")
        made.git("commit", "--quiet", "--no-verify", "--message=as released")
        made.git("tag", "base")
    made.reset()
    return made
