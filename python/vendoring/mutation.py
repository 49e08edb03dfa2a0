"""`mutation`: does each patch's test fail without that patch? Slow, hence run on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .errors import VendoringError
from .layout import OWN_PACKAGE, STAMP_NAME, Layout
from .mutation_record import Mutant
from .pin import Pin, PinnedWheel, read_pin
from .series import Patch, dependents, no_such_patch, read_series, touched_paths
from .stack import apply_exactly, apply_loosely, scratch
from .stamp import stamp_of, wanted, write_stamp
from .talk import say
from .testrun import Run, run_group
from .unpack import unpack
from .wheel_cache import resolve


class Trees(NamedTuple):
    """Contents of every touched file, None for no such file, and the patches that are in them."""

    files: dict[str, bytes | None]
    patches: tuple[Patch, ...]


@dataclass(frozen=True)
class Bench:
    """A scratch tree that patches come and go in, and the interpreter that runs the tests on it."""

    layout: Layout
    pin: Pin
    wheel: PinnedWheel
    folder: Path
    python: str
    timeout_s: float
    pytest_arguments: tuple[str, ...]

    @property
    def tree(self) -> Path:
        return self.folder / "sglang"

    def write(self, trees: Trees) -> None:
        """Puts file contents and a stamp that fits them in place; bytecode of what changes goes."""
        for name, data in trees.files.items():
            path = self.tree / name
            for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                stale.unlink()
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        identity = wanted(self.pin, self.wheel, trees.patches)
        own = self.tree / OWN_PACKAGE
        write_stamp(self.tree / STAMP_NAME, stamp_of(identity, trees.patches, self.tree, own))

    def environment(self) -> dict[str, str]:
        """The scratch tree before the checkout's own, for this process and all it starts."""
        root = self.layout.root
        places = (self.folder, root / "python", root / "sgl-kernel" / "src", root / "test")
        return os.environ | {"PYTHONPATH": os.pathsep.join(str(place) for place in places)}

    def run(self, nodes: tuple[str, ...]) -> Run:
        """Runs tests on the tree, up to the first that fails."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [self.python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += [f"--junit-xml={report}", *self.pytest_arguments, *nodes]
        status = run_group(command, self.layout.root, self.environment(), self.timeout_s)
        if status is None:
            return Run("timeout", f"not done after {self.timeout_s:g} s")
        return _outcome(status, report)


def mutate(
    layout: Layout,
    slugs: list[str],
    python: str = sys.executable,
    timeout_s: float = 1800.0,
    pytest_arguments: tuple[str, ...] = (),
) -> Iterator[Mutant]:
    """Leaves each patch (or those named) out in turn and runs its tests with interpreter `python`.

    `timeout_s` is for one run of one patch's tests, in seconds.
    """
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    unknown = sorted(set(slugs) - {patch.slug for patch in patches})
    if unknown:
        raise no_such_patch(unknown, [patch.slug for patch in patches])
    wheel = pin.wheel(_tag_of(python))
    file = resolve(pin, wheel)
    with tempfile.TemporaryDirectory(prefix="sglang-spec-") as folder:
        bench = Bench(layout, pin, wheel, Path(folder), python, timeout_s, pytest_arguments)
        say("unpacking upstream")
        unpack(file, bench.tree)
        if layout.own.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(layout.own, bench.tree / OWN_PACKAGE, ignore=ignored)
        _check_import(bench)
        whole = contents(pin, file, patches, ())
        chosen = [patch for patch in patches if not slugs or patch.slug in slugs]
        for number, patch in enumerate(chosen, 1):
            say(f"[{number}/{len(chosen)}] {patch.slug}")
            yield _mutant(bench, file, patches, whole, patch)


def _mutant(
    bench: Bench, file: Path, patches: tuple[Patch, ...], whole: Trees, patch: Patch
) -> Mutant:
    left_out = dependents(patch, patches)
    try:
        without_it = contents(bench.pin, file, patches, left_out)
    except VendoringError as fault:
        return Mutant.of(patch, left_out, "", "", "stuck", str(fault))
    bench.write(whole)
    with_patch = bench.run(patch.header.tests)
    if with_patch.outcome != "passed":
        return Mutant.of(patch, left_out, with_patch.outcome, "", "unproven", with_patch.detail)
    bench.write(without_it)
    without = bench.run(patch.header.tests)
    verdict = "killed" if without.outcome in ("failed", "timeout") else "survived"
    return Mutant.of(patch, left_out, "passed", without.outcome, verdict, without.detail)


def contents(pin: Pin, wheel: Path, patches: tuple[Patch, ...], left_out: tuple[str, ...]) -> Trees:
    """Every touched file as the series without `left_out` makes it."""
    kept = tuple(patch for patch in patches if patch.slug not in left_out)
    with scratch(pin, wheel, patches) as repo:
        for patch in kept:
            (apply_loosely if left_out else apply_exactly)(repo, patch)
        paths = {name: repo.work_tree / name for name in touched_paths(patches)}
        files = {name: p.read_bytes() if p.is_file() else None for name, p in paths.items()}
        return Trees(files, kept)


def _tag_of(python: str) -> str:
    code = "import sys; print(f'cp{sys.version_info[0]}{sys.version_info[1]}')"
    return _ask(python, code, dict(os.environ), Path.cwd())


def _check_import(bench: Bench) -> None:
    """The tests must import the scratch tree; an environment that puts another first proves
    nothing.
    """
    code = "import importlib.util as u; print(u.find_spec('sglang').origin)"
    origin = _ask(bench.python, code, bench.environment(), bench.layout.root)
    if not Path(origin).is_relative_to(bench.tree):
        raise VendoringError(
            "the interpreter imports another sglang than the scratch tree", value=origin
        )


def _ask(python: str, code: str, env: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=env, cwd=folder, check=False
    )
    if done.returncode != 0:
        raise VendoringError(
            "the interpreter for the tests does not run", value=python + ": " + done.stderr.strip()
        )
    return done.stdout.strip()


def _outcome(status: int, report: Path) -> Run:
    """Reads pytest's exit status and report. A run passed if a test ran and none failed."""
    if not report.is_file():
        return Run("failed", f"pytest ended with status {status} and no report")
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    if status != 0:
        return Run("failed", _first_failure(cases) or f"pytest ended with status {status}")
    skips = [case.find("skipped") for case in cases]
    if None in skips:
        return Run("passed")
    first = skips[0] if skips else None
    return Run("skipped", "" if first is None else f"not run here: {first.get('message', '')}")


def _first_failure(cases: list[ElementTree.Element]) -> str:
    """Name and words of the first test that failed, so that a person sees why."""
    for case in cases:
        for kind in ("failure", "error"):
            found = case.find(kind)
            if found is not None:
                return f"{case.get('name')}: {found.get('message', '')}"
    return ""
