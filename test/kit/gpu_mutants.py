"""Without a patch that guards a fault of GPUs, a test on a GPU must fail: try each patch alone.

    python -m kit.gpu_mutants pack DIR              here: for each patch, the files without it
    python -m kit.gpu_mutants run DIR SITE OUT      on the GPU machine, all patches at once

`pack` needs the pinned wheel of the GPU machine's Python. `run` makes a copy of the patched sglang
in SITE for each patch (hard links, no room), puts the files without the patch into it,
and runs the patch's tests from there. OUT/mutants.json says which test failed and with what.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit import gpu_record

TEST = Path(__file__).resolve().parents[1]
TAG = "cp312"
LIMIT = 300.0  # seconds for the tests of one patch

# Only what a GPU alone shows: faults of captured graphs, and what is called ready with them. The
# other patches' tests run on the CPU (patches/mutation.md).
GUARDS: dict[str, tuple[str, ...]] = {
    "construction-stages": (
        "test/gpu/test_tp.py::test_a_fault_of_the_last_rank_ends_all_by_name"
        "[1-target_graphs-raise]",
    ),
    "self-test-before-ready": (
        "test/gpu/test_decode.py::test_self_test_proved_the_server[triton]",
    ),
}


def pack(folder: Path, slugs: Sequence[str], tag: str = TAG) -> None:
    """Write `folder/SLUG/sglang/...`: the files that differ when that patch is left out."""
    from vendoring.layout import Layout
    from vendoring.mutation import _contents, _dependents
    from vendoring.pin import read_pin
    from vendoring.series import read_series
    from vendoring.wheel_cache import resolve

    layout = Layout(TEST.parent)
    pin, patches = read_pin(layout.pin), read_series(layout)
    wheel = resolve(pin, pin.wheel(tag))
    whole = _contents(pin, wheel, patches, ()).files
    for slug in slugs:
        (patch,) = [patch for patch in patches if patch.slug == slug]
        without = _contents(pin, wheel, patches, _dependents(patch, patches)).files
        changed = {name: data for name, data in without.items() if data != whole[name]}
        for name, data in changed.items():
            path = folder / slug / "sglang" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            assert data is not None, (
                f"{name} exists only with the patch: it is a module, not a guard"
            )
            path.write_bytes(data)
        print(f"{slug}: {', '.join(sorted(changed))}")


def mutant(folder: Path, site: Path, target: Path) -> None:
    """A copy of `site/sglang` at `target/sglang` with the files of `folder` in it."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    subprocess.run(["cp", "-al", str(site / "sglang"), str(target / "sglang")], check=True)
    for source in sorted(path for path in folder.rglob("*") if path.is_file()):
        path = target / source.relative_to(folder)
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            stale.unlink()
        path.unlink(missing_ok=True)  # a hard link to the file of the site
        shutil.copyfile(source, path)


def run(folder: Path, site: Path, out: Path, limit: float = LIMIT) -> list[dict[str, Any]]:
    """Run every packed patch's tests without it, at once; one entry a patch."""
    children = {}
    for slug in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        target = folder.parent / f"{folder.name}-sites" / slug
        mutant(folder / slug, site, target)
        junit = out / f"mutant-{slug}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junit-xml={junit}", *GUARDS[slug]]
        path = os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")])
        with (out / f"mutant-{slug}.log").open("w") as log:
            child = subprocess.Popen(
                command,
                cwd=TEST.parent,
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        children[slug] = (child, junit)
    deadline = time.monotonic() + limit
    entries = []
    for slug, (child, junit) in children.items():
        try:
            status: int | None = child.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            status = None
        entries.append(entry(slug, status, junit))
    return entries


def entry(slug: str, status: int | None, junit: Path) -> dict[str, Any]:
    """`killed` if a test failed without the patch, `survived` if all passed, else `unproven`."""
    results = gpu_record.of_junit(junit) if junit.is_file() else []
    failed = [result for result in results if result.outcome == gpu_record.FAILED]
    passed = [result for result in results if result.outcome == gpu_record.PASSED]
    outcome = "killed" if failed else "survived" if passed and status == 0 else "unproven"
    said = failed[0].why if failed else "; ".join(result.why for result in results)
    return {"patch": slug, "outcome": outcome, "tests": list(GUARDS[slug]), "said": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack")
    packing.add_argument("folder", type=Path)
    running = verbs.add_parser("run")
    for name in ("folder", "site", "out"):
        running.add_argument(name, type=Path)
    options = parser.parse_args()
    if options.verb == "pack":
        pack(options.folder, list(GUARDS))
        return
    entries = run(options.folder.resolve(), options.site.resolve(), options.out.resolve())
    content = {"provenance": gpu_record.provenance([], []), "mutants": entries}
    (options.out / "mutants.json").write_text(json.dumps(content, indent=1) + "\n")
    for found in entries:
        print(f"{found['outcome']:9} {found['patch']}: {found['said'][:150]}")
    sys.exit(any(found["outcome"] != "killed" for found in entries))


if __name__ == "__main__":
    main()
