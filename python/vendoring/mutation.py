"""`mutation`: does each patch's test fail without that patch? Slow, hence run on demand."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import VendoringError
from .layout import OWN_PACKAGE, Layout
from .pin import Pin, read_pin
from .series import Patch, read_series, touched_paths
from .stack import apply_exactly, apply_loosely, scratch
from .talk import say
from .unpack import unpack
from .wheel_cache import resolve


@dataclass(frozen=True)
class Mutant:
    """One patch left out, together with those that depend on it.

    `with_patch` and `without` are passed, failed, skipped or timeout; `verdict` is killed (as it
    should be), survived, unproven (the test does not pass with the patch here) or stuck.
    """

    slug: str
    tests: tuple[str, ...]
    left_out: tuple[str, ...]
    with_patch: str
    without: str
    verdict: str
    detail: str = ""


@dataclass(frozen=True)
class Bench:
    """A scratch tree that patches come and go in, and the interpreter that runs the tests on it."""

    layout: Layout
    tree: Path
    python: str
    timeout_s: float

    def write(self, files: dict[str, bytes | None]) -> None:
        """Puts file contents in place, None deletes; bytecode of what changes goes."""
        for name, data in files.items():
            path = self.tree / "sglang" / name
            for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                stale.unlink()
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def run(self, nodes: tuple[str, ...]) -> str:
        """Runs tests on the tree: passed, failed, skipped or timeout."""
        root = self.layout.root
        places = (self.tree, root / "python", root / "sgl-kernel" / "src")
        env = os.environ | {"PYTHONPATH": os.pathsep.join(str(place) for place in places)}
        report = self.tree / "report.xml"
        report.unlink(missing_ok=True)
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junit-xml={report}", *nodes]
        with subprocess.Popen(
            command, cwd=root, env=env, stdout=sys.stderr, start_new_session=True
        ) as child:
            try:
                status = child.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                if child.returncode is None:  # too slow, or Ctrl-C: no server may stay behind
                    os.killpg(child.pid, signal.SIGKILL)
        return _outcome(status, report)


def mutate(
    layout: Layout, slugs: list[str], python: str = sys.executable, timeout_s: float = 1800.0
) -> list[Mutant]:
    """Leaves each patch (or those named) out in turn and runs its tests with interpreter `python`.

    `timeout_s` is for one run of one patch's tests, in seconds.
    """
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    unknown = sorted(set(slugs) - {patch.slug for patch in patches})
    if unknown:
        raise VendoringError("there is no patch of this name", value=", ".join(unknown))
    wheel = resolve(pin, pin.wheel(_tag_of(python)))
    with tempfile.TemporaryDirectory(prefix="sglang-spec-") as folder:
        bench = Bench(layout, Path(folder), python, timeout_s)
        say("unpacking upstream")
        unpack(wheel, bench.tree / "sglang")
        if layout.own.is_dir():
            shutil.copytree(layout.own, bench.tree / "sglang" / OWN_PACKAGE)
        _check_import(bench)
        chosen = [patch for patch in patches if not slugs or patch.slug in slugs]
        return list(_mutants(bench, pin, wheel, patches, chosen))


def _mutants(
    bench: Bench, pin: Pin, wheel: Path, patches: tuple[Patch, ...], chosen: list[Patch]
) -> Iterator[Mutant]:
    whole = _contents(pin, wheel, patches, ())
    for number, patch in enumerate(chosen, 1):
        say(f"[{number}/{len(chosen)}] {patch.slug}")
        left_out = _dependents(patch, patches)
        tests = patch.header.tests
        try:
            without_files = _contents(pin, wheel, patches, left_out)
        except VendoringError as fault:
            yield Mutant(patch.slug, tests, left_out, "", "", "stuck", " ".join(str(fault).split()))
            continue
        bench.write(whole)
        with_patch = bench.run(tests)
        if with_patch != "passed":
            yield Mutant(patch.slug, tests, left_out, with_patch, "", "unproven")
            continue
        bench.write(without_files)
        without = bench.run(tests)
        verdict = "killed" if without in ("failed", "timeout") else "survived"
        yield Mutant(patch.slug, tests, left_out, with_patch, without, verdict)


def _dependents(patch: Patch, patches: tuple[Patch, ...]) -> tuple[str, ...]:
    """The patch and every one that cannot stand without it, in series order."""
    gone = {patch.slug}
    for other in patches:
        if gone & set(other.header.depends):
            gone.add(other.slug)
    return tuple(other.slug for other in patches if other.slug in gone)


def _contents(
    pin: Pin, wheel: Path, patches: tuple[Patch, ...], left_out: tuple[str, ...]
) -> dict[str, bytes | None]:
    """Every touched file as the series without `left_out` makes it."""
    with scratch(pin, wheel, patches) as repo:
        for patch in patches:
            if patch.slug not in left_out:
                (apply_loosely if left_out else apply_exactly)(repo, patch)
        paths = {name: repo.work_tree / name for name in touched_paths(patches)}
        return {name: path.read_bytes() if path.is_file() else None for name, path in paths.items()}


def _tag_of(python: str) -> str:
    code = "import sys; print(f'cp{sys.version_info[0]}{sys.version_info[1]}')"
    return _ask(python, code, dict(os.environ), Path.cwd())


def _check_import(bench: Bench) -> None:
    """The tests must import the scratch tree; an environment that puts another first proves
    nothing.
    """
    env = os.environ | {"PYTHONPATH": str(bench.tree)}
    code = "import importlib.util as u; print(u.find_spec('sglang').origin)"
    origin = _ask(bench.python, code, env, bench.layout.root)
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


def _outcome(status: int, report: Path) -> str:
    """Reads pytest's exit status and report. A run passed if a test ran and none failed."""
    if status != 0 or not report.is_file():
        return "failed"
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total = skipped = 0
    for suite in suites:
        total += int(suite.get("tests", "0"))
        skipped += int(suite.get("skipped", "0"))
    return "passed" if total > skipped else "skipped"


def write_table(mutants: list[Mutant], folder: Path) -> tuple[Path, Path]:
    """Writes `mutation.json` and `mutation.md` with today's date."""
    folder.mkdir(parents=True, exist_ok=True)
    today = datetime.date.today().isoformat()
    data = {"date": today, "mutants": [asdict(mutant) for mutant in mutants]}
    json_path, text_path = folder / "mutation.json", folder / "mutation.md"
    json_path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text_path.write_text(
        f"# Each patch left out alone ({today})\n\n{table_text(mutants)}", encoding="utf-8"
    )
    return json_path, text_path


def table_text(mutants: list[Mutant]) -> str:
    """A Markdown table."""
    lines = [
        "| patch | left out with it | test | with | without | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for mutant in mutants:
        others = ", ".join(name for name in mutant.left_out if name != mutant.slug)
        tests = " ".join(f"`{node}`" for node in mutant.tests)
        cells = (mutant.slug, others, tests, mutant.with_patch, mutant.without, mutant.verdict)
        lines.append("| " + " | ".join(cells) + " |")
        if mutant.detail:
            lines.append(f"| | | {mutant.detail} | | | |")
    return "\n".join(lines) + "\n"
