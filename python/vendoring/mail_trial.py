"""`mails`: does each mail apply to clean upstream, and does its test need it? Slow; on demand."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from .errors import VendoringError
from .gitrepo import BASE_REF, GitRepo
from .layout import Layout
from .mail import Mail
from .mail_record import Trial, fingerprint
from .metadata import upstream_requirements
from .pin import Pin, read_pin
from .places import PREFIX
from .series import decode
from .stack import base_message
from .talk import say
from .testfiles import TestFiles
from .testrun import Run
from .unpack import read_metadata, unpack
from .upstream import Known, export_upstream
from .wheel_cache import resolve_any

_FAILED = re.compile(
    r"^(?:FAIL|ERROR): (.+)$\n(?:.*\n)*?((?:\w+\.)*\w+(?:Error|Exception).*)$", re.M
)


_SLOW_IMPORTS = (
    "torch",
    "torch._dynamo",
    "transformers.modeling_utils",
    "compressed_tensors",
    "openai",
    "aiohttp",
    "fastapi",
    "scipy.stats",
    "xgrammar",
)


class Tried(NamedTuple):
    """One trial, all mails there are, and the folder that they lie in while trials go on."""

    trial: Trial
    mails: list[Mail]
    folder: Path


@dataclass(frozen=True)
class Clean:
    """A whole tree in upstream's layout under git, as a maintainer has it."""

    repo: GitRepo

    @classmethod
    def make(cls, folder: Path, pin: Pin, wheel: Path) -> Clean:
        repo = GitRepo(folder / "git", folder / "tree")
        repo.work_tree.mkdir(parents=True)
        unpack(wheel, repo.work_tree / PREFIX)
        repo.init()
        # Bytecode is no change; our own package, which is ignored elsewhere, would be one.
        (repo.git_dir / "info" / "exclude").write_text("__pycache__/\n*.pyc\n", encoding="utf-8")
        repo.commit_base(base_message(pin))
        return cls(repo)

    @property
    def folder(self) -> Path:
        return self.repo.work_tree

    def reset(self) -> None:
        """Back to plain upstream, whatever a run left."""
        self.repo.run("reset", "--quiet", "--hard", BASE_REF)
        self.repo.run("clean", "-fdq")

    def take(self, mail: Path) -> None:
        """Applies one mail as it is sent: no fuzz, no three-way merge."""
        done = self.repo.attempt("am", "--quiet", str(mail))
        if done.returncode != 0:
            self.repo.attempt("am", "--abort")
            raise VendoringError(
                "a mail does not apply to clean upstream",
                file=mail.name,
                value=decode(done.stderr).strip(),
            )

    def revert_edits(self) -> None:
        """Upstream's own files as they were; what the mails brought stays."""
        listed = self.repo.run("diff", "--name-only", "--diff-filter=MD", BASE_REF, "HEAD")
        self.repo.run("checkout", "--quiet", BASE_REF, "--", *listed.splitlines())


def outcome(status: int | None, text: str) -> Run:
    """Reads what `unittest.main` printed and its exit status, None if it was not done in time.
    Skipped alone is not passed.
    """
    if status is None:
        return Run("timeout", "not done in time")
    ran = re.search(r"^Ran (\d+) tests? in", text, re.M)
    if ran is None:
        last = text.strip().rsplit("\n", 1)[-1]
        return Run("broken", f"ended with status {status} and no report: {last}")
    if status != 0:
        first = _FAILED.search(text)
        return Run("failed", f"{first[1]}: {first[2]}" if first else f"status {status}")
    skipped = re.search(r"^OK \(.*?skipped=(\d+)", text, re.M)
    all_skipped = int(ran[1]) == (int(skipped[1]) if skipped else 0)
    return Run("skipped", "no test ran") if all_skipped else Run("passed")


def try_mails(
    layout: Layout,
    slugs: list[str],
    python: str = sys.executable,
    timeout_s: float = 600.0,
    good: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Tried]:
    """Tries each mail, or those of the patches named, with interpreter `python`.

    `timeout_s` is for one test file, in seconds; a mail whose fingerprint is in `good` is left out.
    """
    pin = read_pin(layout.pin)
    _, wheel = resolve_any(pin)
    kernels = layout.root / "sgl-kernel" / "src"  # a host without CUDA has them for upstream's
    with (
        tempfile.TemporaryDirectory(prefix="sglang-spec-") as name,
        TestFiles(python, Path(name) / "log", timeout_s, _preloaded(wheel)) as files,
    ):
        place = Path(name)
        known = Known()
        mails = export_upstream(layout, place / "mails", known=known)
        stacked = export_upstream(layout, place / "stacked", stacked=True, known=known)
        chosen = [mail for mail in mails if mail.file and (not slugs or mail.slug in slugs)]
        unknown = sorted(set(slugs) - {mail.slug for mail in chosen})
        if unknown:
            raise VendoringError("there is no mail of this name", value=", ".join(unknown))
        prints = {mail.slug: fingerprint(place / "mails" / mail.file) for mail in chosen}
        chosen = [mail for mail in chosen if good.get(mail.slug) != prints[mail.slug]]
        if not chosen:
            return
        clean = Clean.make(place / "clean", pin, wheel)
        whole = Clean.make(place / "whole", pin, wheel)
        for mail in last_first(stacked):
            whole.take(place / "stacked" / mail.file)
        for number, mail in enumerate(chosen, 1):
            say(f"[{number}/{len(chosen)}] {mail.slug}")
            start = time.monotonic()
            clean.reset()
            for slug in (*mail.after, mail.slug):
                clean.take(place / "mails" / f"{slug}.patch")
            alone = _run(files, clean, kernels, mail)
            clean.revert_edits()
            without = _run(files, clean, kernels, mail)
            together = _run(files, whole, kernels, mail)
            seconds = time.monotonic() - start
            trial = Trial.of(mail, place / "mails", alone, without, together, seconds)
            yield Tried(trial, mails, place / "mails")


def _preloaded(wheel: Path) -> list[str]:
    """Modules that upstream's import spends its time on, as far as upstream requires them."""
    required = upstream_requirements(read_metadata(wheel, "METADATA"))
    names = {re.split(r"[^\w.-]", text, maxsplit=1)[0].replace("-", "_") for text in required}
    return [name for name in _SLOW_IMPORTS if name.split(".")[0] in names]


def _run(files: TestFiles, clean: Clean, kernels: Path, mail: Mail) -> Run:
    """The first outcome of the mail's test files that is not `passed`, else that."""
    found = Run("broken", "the mail brings no test")
    for name in mail.tests:
        status, text = files.run(name, clean.folder, (clean.folder / "python", kernels))
        found = outcome(status, text)
        if found.outcome != "passed":
            break
    return found


def last_first(mails: list[Mail]) -> list[Mail]:
    """An order as far from the written one as the dependencies allow."""
    left = [mail for mail in mails if mail.file]
    order: list[Mail] = []
    while left:
        done = {mail.slug for mail in order}
        order.append([mail for mail in left if set(mail.depends) <= done][-1])
        left.remove(order[-1])
    return order
