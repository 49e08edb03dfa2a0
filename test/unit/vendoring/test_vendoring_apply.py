"""`apply`: the tree is made whole or not at all, once, and never over somebody's work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from kit.vendoring_project import FILES, NUMBERS, TAG, Project, make_wheel, sha256
from vendoring import interpreter
from vendoring.errors import VendoringError
from vendoring.lock import locked
from vendoring.stamp import read_stamp
from vendoring.state import Condition
from vendoring.tree import apply


def test_makes_the_tree_and_keeps_git_out_of_it(project: Project) -> None:
    project.fine("apply")
    assert project.snapshot() == {
        **{name: text.encode() for name, text in FILES.items()},
        "srt/spec_hardening/__init__.py": b'"""Ours."""\n',
    }
    assert not list(project.tree.rglob(".git"))
    stamp = read_stamp(project.layout.stamp)
    assert stamp is not None
    assert (stamp["version"], stamp["tag"], stamp["patches"]) == ("9.9.1", TAG, [])
    assert "spec_hardening" not in project.fine("git", "ls-files")


def test_second_run_does_nothing(patched: Project) -> None:
    """It does not even look for the wheel."""
    before = _places(patched)
    patched.wheel.unlink()
    assert json.loads(patched.fine("apply", "--json")) == {"found": "current", "made": False}
    assert _places(patched) == before


def _places(project: Project) -> dict[Path, tuple[int, int]]:
    """Which file on the disk each one of the tree is, and when it was written."""
    files = [path for path in project.tree.rglob("*") if path.is_file()]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def test_stamp_has_the_hashes_of_the_whole_program(patched: Project) -> None:
    stamp = read_stamp(patched.layout.stamp)
    assert stamp is not None
    assert [entry["slug"] for entry in stamp["patches"]] == ["widen", "more-steps"]
    for name, found in stamp["files"].items():
        assert sha256(patched.tree / name) == found
    patched_files, others = {"srt/engine.py", "srt/args.py"}, {"__init__.py", "srt/__init__.py"}
    assert set(stamp["files"]) == patched_files | others
    (ours,) = stamp["own"]
    assert ours == "srt/spec_hardening/__init__.py"
    assert stamp["own"][ours] == sha256(patched.tree / ours)


@pytest.mark.parametrize("edited", [False, True])
def test_apply_stamps_our_own_modules_anew_and_blesses_no_edit(
    patched: Project, edited: bool
) -> None:
    """Ours are edited in the project's git, without a tree being made."""
    before = read_stamp(patched.layout.stamp)
    module = patched.layout.own / "rule.py"
    module.write_text("RULE = 1\n")
    if edited:
        patched.edit("srt/__init__.py", "", "WORK = 1\n")
    patched.fine("apply", "--keep-edits")
    after = read_stamp(patched.layout.stamp)
    assert before is not None and after is not None
    assert after["own"] == before["own"] | {"srt/spec_hardening/rule.py": sha256(module)}
    assert {**after, "own": 0} == {**before, "own": 0}


def test_a_stamp_from_before_gets_all_hashes(patched: Project) -> None:
    whole = patched.layout.stamp.read_bytes()
    old = json.loads(whole)
    del old["own"]
    del old["files"]["srt/__init__.py"]
    patched.layout.stamp.write_text(json.dumps(old))
    patched.fine("apply")
    assert patched.layout.stamp.read_bytes() == whole


def test_wrong_hash_shows_both_and_leaves_nothing(project: Project) -> None:
    project.pin(sha="0" * 64)
    done = project.command("apply")
    assert done.returncode == 1
    assert "0" * 64 in done.stderr and sha256(project.wheel) in done.stderr
    assert not project.layout.stamp.exists()
    assert set(os.listdir(project.tree)) == {"srt"}


def test_damaged_cache_is_not_used(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.fine("apply")
    cached = next(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.whl"))
    cached.write_bytes(b"damaged")
    monkeypatch.delenv("SGLANG_UPSTREAM_WHEEL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    project.layout.stamp.unlink()
    done = project.command("apply")
    assert done.returncode == 1
    assert "damaged" in done.stderr


def test_the_cache_serves_offline(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.fine("apply")
    monkeypatch.delenv("SGLANG_UPSTREAM_WHEEL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    project.layout.stamp.unlink()
    project.fine("apply")


def test_no_network_and_no_wheel(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_UPSTREAM_WHEEL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    done = project.command("apply")
    assert done.returncode == 1
    assert "no network" in done.stderr and "SGLANG_UPSTREAM_WHEEL=FILE" in done.stderr
    assert not project.layout.stamp.exists()


def test_given_wheel_that_is_not_there(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_UPSTREAM_WHEEL", "/nowhere/x.whl")
    done = project.command("apply")
    assert done.returncode == 1
    assert "/nowhere/x.whl" in done.stderr


def test_patch_that_does_not_apply_is_named_with_file_and_hunk(patched: Project) -> None:
    before = patched.snapshot()
    path = patched.layout.patches / "widen.patch"
    path.write_text(path.read_text().replace("tokens[:width]", "tokens[:wide]"))
    done = patched.command("apply")
    assert done.returncode == 1
    assert "patch widen does not apply: srt/engine.py, hunk 1" in done.stderr
    assert "line 2" in done.stderr
    assert patched.snapshot() == before


def test_offset_is_refused_too(patched: Project) -> None:
    path = patched.layout.patches / "more-steps.patch"
    path.write_text(path.read_text().replace("@@ -1,7 +1,7 @@", "@@ -3,7 +3,7 @@"))
    done = patched.command("apply")
    assert done.returncode == 1
    assert "applies only with an offset: srt/args.py, hunk 1" in done.stderr


def test_local_edits_are_kept_and_named(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    (patched.tree / "srt" / "fresh.py").write_text("x = 1\n")
    patched.pin(spec=2)  # something that calls for a new tree
    done = patched.command("apply")
    assert done.returncode == 1
    assert "srt/engine.py" in done.stderr and "srt/fresh.py" in done.stderr
    assert "export" in done.stderr and "--discard" in done.stderr
    assert "SEVEN" in (patched.tree / "srt" / "engine.py").read_text()
    patched.fine("apply", "--discard")
    assert "SEVEN" not in (patched.tree / "srt" / "engine.py").read_text()
    assert not (patched.tree / "srt" / "fresh.py").exists()


def test_edits_in_a_tree_that_is_else_current_can_be_accepted(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    assert patched.command("apply").returncode == 1
    patched.fine("apply", "--keep-edits")
    assert "SEVEN" in (patched.tree / "srt" / "engine.py").read_text()
    patched.pin(spec=2)
    assert patched.command("apply", "--keep-edits").returncode == 1


def test_unexported_commit_is_kept_and_named(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    patched.fine("git", "commit", "-qam", "Rename line seven")
    done = patched.command("apply")
    assert done.returncode == 1
    assert "Rename line seven" in done.stderr
    assert "SEVEN" in (patched.tree / "srt" / "engine.py").read_text()


def test_tree_without_stamp_is_made_anew(patched: Project) -> None:
    before = patched.snapshot()
    patched.layout.stamp.unlink()
    assert json.loads(patched.fine("apply", "--json")) == {"found": "half-made", "made": True}
    assert patched.snapshot() == before


def test_tree_without_git_directory_keeps_what_differs_aside(patched: Project) -> None:
    before = patched.snapshot()
    shutil.rmtree(patched.layout.git_dir)
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    done = patched.command("apply")
    assert done.returncode == 0 and "1 files" in done.stderr
    assert patched.snapshot() == before
    assert "SEVEN" in (patched.layout.state / "aside" / "srt" / "engine.py").read_text()


def test_new_patches_make_the_tree_anew(patched: Project) -> None:
    series = patched.layout.series
    series.write_text(series.read_text().replace("more-steps.patch\n", ""))
    assert json.loads(patched.fine("apply", "--json"))["found"] == "stale"
    assert "steps: int = 3" in (patched.tree / "srt" / "args.py").read_text()


def test_another_interpreter_gets_its_own_tree(
    patched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "running_tag", lambda: "cp399")
    assert apply(patched.layout).condition is Condition.STALE
    stamp = read_stamp(patched.layout.stamp)
    assert stamp is not None and stamp["tag"] == "cp399"


def test_unpinned_interpreter_is_refused_by_name(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "running_tag", lambda: "cp310")
    with pytest.raises(VendoringError) as caught:
        apply(project.layout)
    assert "cp310" in str(caught.value) and TAG in caught.value.remedy


def test_unpinned_platform_is_refused_by_name(project: Project) -> None:
    project.pin(machine="riscv64")
    done = project.command("apply")
    assert done.returncode == 1
    assert "riscv64" in done.stderr and os.uname().machine in done.stderr


def test_too_little_disk(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 99, 1))
    with pytest.raises(VendoringError, match="too little disk space"):
        apply(project.layout)
    assert not project.layout.stamp.exists()
    assert set(os.listdir(project.tree)) == {"srt"}


def test_cut_off_at_any_rename_never_looks_whole(
    patched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts the run at each move of files; then the tree is the old one or has no stamp."""
    old = patched.snapshot()
    series = patched.layout.series
    patched.layout.series.write_text(series.read_text().replace("widen.patch\n", ""))
    real, steps = os.rename, 0
    while True:
        calls = 0

        def rename(source: Path, target: Path, limit: int = steps) -> None:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise KeyboardInterrupt
            real(source, target)

        monkeypatch.setattr(os, "rename", rename)
        try:
            apply(patched.layout)
            break
        except KeyboardInterrupt:
            steps += 1
        finally:
            monkeypatch.setattr(os, "rename", real)
        assert not patched.layout.stamp.exists() or patched.snapshot() == old
        assert (patched.layout.own / "__init__.py").read_text() == '"""Ours."""\n'
    assert steps > 5
    assert "width=1" in (patched.tree / "srt" / "engine.py").read_text()
    assert json.loads(patched.fine("apply", "--json"))["made"] is False


# The command, which gets a real SIGINT when it has unpacked 50 files.
INTERRUPTED = """
import os, runpy, signal
from vendoring import unpack

plain = unpack.tracked

def tracked(items, what):
    for number, item in enumerate(plain(items, what)):
        if number == 50:
            os.kill(os.getpid(), signal.SIGINT)
        yield item

unpack.tracked = tracked
runpy.run_module("vendoring", run_name="__main__")
"""


def test_interrupt_signal_while_unpacking(project: Project, tmp_path: Path) -> None:
    many = FILES | {f"srt/models/m{number}.py": NUMBERS for number in range(200)}
    wheel = make_wheel(tmp_path / "large", many)
    project.pin(sha=sha256(wheel))
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "apply"],
        cwd=project.layout.python,
        env=project.environment() | {"SGLANG_UPSTREAM_WHEEL": str(wheel)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "unpacking" in done.stderr.splitlines()[0]
    assert done.returncode == 130 and "interrupted" in done.stderr, done.stderr
    assert not project.layout.stamp.exists()
    assert set(os.listdir(project.tree)) == {"srt"}


def test_two_runs_at_once_make_one_tree(project: Project) -> None:
    command = [sys.executable, "-m", "vendoring", "apply", "--json"]
    runs = [
        subprocess.Popen(
            command,
            cwd=project.layout.python,
            env=project.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    made = sorted(json.loads(run.communicate(timeout=300)[0])["made"] for run in runs)
    assert made == [False, True]


def test_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), pytest.raises(VendoringError, match=f"process {os.getpid()}"):  # noqa: SIM117
        with locked(path, wait_s=0.1):
            pass
    with locked(path, wait_s=0.1):
        pass
