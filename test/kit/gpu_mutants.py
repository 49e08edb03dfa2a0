"""Without a patch that guards a fault of GPUs, a test on a GPU must fail: try each patch alone.

    python -m kit.gpu_mutants here OUT              all at once that these GPUs can show

It takes each patch back from the files of the sglang that is used (and those patches that depend on
it), makes a copy of that sglang for each (hard links, no room), puts the files without the patch
into it, and runs the patch's tests from there. OUT/mutants.json says which test failed and with
what. Needs neither a wheel nor git.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vendoring.layout import Layout
from vendoring.series import dependents, read_series
from vendoring.undo import undone

from kit import gpu_record, gpus
from kit.upstream import site

TEST = Path(__file__).resolve().parents[1]
LIMIT = 300.0  # seconds for the tests of one patch


@dataclass(frozen=True)
class Guard:
    """The tests that fail on `gpus` GPUs without a patch."""

    tests: tuple[str, ...]
    gpus: int = 1


# What a GPU alone shows: captured graphs, kernels and samplers that no CPU has, and peers. The
# other patches' tests run on the CPU (patches/mutation.md).
GUARDS = {
    "construction-stages": Guard(
        (
            "test/gpu/test_tp.py::test_a_fault_of_the_last_rank_ends_all_by_name"
            "[1-target_graphs-raise]",
        )
    ),
    "self-test-before-ready": Guard(
        ("test/gpu/test_decode.py::test_self_test_proved_the_server[triton]",)
    ),
    "plain-decode-graphs": Guard(
        ("test/gpu/test_threshold.py::test_off_is_a_plain_decode_and_the_draft_catches_up[triton]",)
    ),
    "rejection-without-drafts": Guard(("test/gpu/test_rejection.py::test_adaptive_at_zero_steps",)),
    "vote-on-all-reduce": Guard(
        ("test/gpu/test_comm.py::test_a_fault_in_one_rank_takes_the_custom_all_reduce_from_both",),
        gpus=2,
    ),
    "verify-as-decode": Guard(
        ("test/gpu/test_verify_attention.py::TestAlways::test_the_server_says_so[verify-decode]",)
    ),
    "adaptive-graphs-as-asked": Guard(
        ("test/gpu/test_adaptive.py::test_a_state_captures_no_size_that_it_is_not_used_at",)
    ),
}
# Faults of GPUs that no test on a GPU shows, and why not.
STOOD_IN = dict.fromkeys(
    ("vote-on-fusion", "keep-captured-workspace"),
    "FlashInfer's fusion takes NVLink multicast, which is not ours to take on a shared host: "
    "test/unit/comm/test_fusion.py has a stand-in for the library",
)


def write(folder: Path, slugs: Sequence[str]) -> None:
    """Write `folder/SLUG/sglang/...`: the files that differ when that patch is left out."""
    patches = read_series(Layout(TEST.parent))
    for slug in slugs:
        (patch,) = [patch for patch in patches if patch.slug == slug]
        order = reversed(dependents(patch, patches))
        files = [TEST.parent / "patches" / f"{name}.patch" for name in order]
        changed = undone(files, site() / "sglang")
        for name, text in changed.items():
            path = folder / slug / "sglang" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
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
        command += [f"--junit-xml={junit}", *GUARDS[slug].tests]
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
    return {"patch": slug, "outcome": outcome, "tests": list(GUARDS[slug].tests), "said": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=("here",))
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=LIMIT, help="for all tests")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out.resolve()
    here = [slug for slug, guard in GUARDS.items() if guard.gpus <= max(1, gpus.count())]
    left = {slug: f"needs {GUARDS[slug].gpus} GPUs" for slug in GUARDS if slug not in here}
    with tempfile.TemporaryDirectory(dir=site()) as scratch:  # hard links need one file system
        folder = Path(scratch) / "mutants"
        write(folder, here)
        entries = run(folder, site(), out, options.seconds)
    content = {
        "provenance": gpu_record.provenance([], []),
        "mutants": entries,
        "not_run": left | STOOD_IN,
    }
    (out / "mutants.json").write_text(json.dumps(content, indent=1) + "\n")
    for found in entries:
        print(f"{found['outcome']:9} {found['patch']}: {found['said'][:150]}")
    for slug, why in (left | STOOD_IN).items():
        print(f"not run   {slug}: {why}")
    sys.exit(any(found["outcome"] != "killed" for found in entries))


if __name__ == "__main__":
    main()
