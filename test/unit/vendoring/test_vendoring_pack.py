"""`pack` and the scripts in it: put over a plain installation, run there, results brought back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import vendoring
from kit.vendoring_project import TAG, Project, unpacked

NODE = "test/unit/test_widen.py::test_width"


def pack(project: Project, target: Path, *arguments: str) -> dict[str, Any]:
    found = project.fine("pack", str(target), "--python-tag", TAG, "--json", *arguments)
    done: dict[str, Any] = json.loads(found)
    return done


def run(there: Path, site: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    hidden = ("PYTHONPATH", "SGLANG_SITE", "OUT", "PYTEST_ADDOPTS")
    plain = {key: value for key, value in os.environ.items() if key not in hidden}
    return subprocess.run(
        ["bash", str(there / "run-gpu.sh"), "--site", str(site), "--out", str(out), *arguments],
        cwd=there.parent,
        env={**plain, "PYTHON": sys.executable, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_same_checkout_gives_the_same_bytes(patched: Project, tmp_path: Path) -> None:
    first = pack(patched, tmp_path / "one.tar.gz")
    for path in patched.root.rglob("*"):
        os.utime(path)
    assert pack(patched, tmp_path / "two" / "b.tar.gz")["sha256"] == first["sha256"]
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        members = archive.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(0, 0, 0, "")}
    assert [m.name for m in members] == sorted(m.name for m in members)


def test_it_holds_overlay_commands_and_tests_and_no_build_results(
    patched: Project, tmp_path: Path
) -> None:
    for junk in ("test/unit/__pycache__/x.pyc", "build/x"):
        (patched.root / junk).parent.mkdir(parents=True, exist_ok=True)
        (patched.root / junk).touch()
    names = set(files(unpacked(patched, tmp_path)))
    assert "overlay/sglang/srt/engine.py" in names
    assert "overlay/sglang/_spec_pin.json" in names
    assert "overlay/sglang/srt/spec_hardening/__init__.py" in names
    assert {"python/sglang_spec/__init__.py", "test/unit/test_widen.py", "run-gpu.sh"} <= names
    assert not [name for name in names if name.endswith((".pyc", "/x"))]
    assert "overlay/sglang/srt/__init__.py" not in names, "a file that no patch changes"


def test_too_large_a_pack_is_refused(patched: Project, tmp_path: Path) -> None:
    from vendoring.errors import VendoringError
    from vendoring.pack import write_pack

    with pytest.raises(VendoringError, match="larger than what travels"):
        write_pack(patched.layout, tmp_path / "pack.tar.gz", TAG, most=100)
    assert not list(tmp_path.glob("pack.tar.gz*"))


def test_runs_on_a_plain_installation(patched: Project, site: Path, tmp_path: Path) -> None:
    there, out = unpacked(patched, tmp_path), tmp_path / "out"
    done = run(there, site, out, "--only", NODE)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "results.json").read_text())
    assert results["counts"] == {"passed": 1} and not results["partial"]
    assert results["tests"][0]["test"] == NODE
    stamp = json.loads((site / "sglang" / "_spec_pin.json").read_text())
    assert results["pack"]["patch_set"] == stamp["patch_set"]
    assert results["pack"]["patches"] == ["widen", "more-steps"]
    assert results["date"][:2] == "20" and results["status"] == 0
    assert b'name="test_width"' in (out / "junit.xml").read_bytes()
    assert "1 passed" in (out / "pytest.log").read_text()


def test_a_failing_test_is_in_the_results_and_in_the_status(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    (patched.root / "test" / "unit" / "test_no.py").write_text(
        "def test_no():\n    assert 1 == 2\n"
    )
    there, out = unpacked(patched, tmp_path), tmp_path / "out"
    done = run(there, site, out, "--only", NODE, "test/unit/test_no.py", "--", "--exitfirst")
    assert done.returncode == 1
    results = json.loads((out / "results.json").read_text())
    assert results["counts"] == {"passed": 1, "failed": 1} and results["status"] == 1
    assert "assert 1 == 2" in results["tests"][1]["message"]


def test_a_run_that_is_cut_off_leaves_what_it_has(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    (patched.root / "test" / "unit" / "test_slow.py").write_text(
        "import time\n\n\ndef test_slow():\n    time.sleep(61.5)\n"
    )
    there, out = unpacked(patched, tmp_path), tmp_path / "out"
    done = run(there, site, out, "--limit", "4", "--only", NODE, "test/unit/test_slow.py")
    assert done.returncode not in (0, 1)
    results = json.loads((out / "results.json").read_text())
    assert results["partial"] and results["counts"] == {"passed": 1, "cut-off": 1}


def test_another_pack_replaces_the_first_and_plain_takes_it_off(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    before = files(site)
    first, out = unpacked(patched, tmp_path / "first"), tmp_path / "out"
    assert run(first, site, out, "--only", NODE).returncode == 0
    assert b"steps: int = 4" in (site / "sglang/srt/args.py").read_bytes()
    patched.fine("drop", "more-steps", "--why", "to see it gone")
    patched.fine("apply")
    second = unpacked(patched, tmp_path / "second")
    assert run(second, site, out, "--only", NODE).returncode == 0
    assert b"steps: int = 3" in (site / "sglang/srt/args.py").read_bytes()
    done = run(second, site, out, "--plain")
    assert done.returncode == 0 and "taken off" in done.stdout
    assert files(site) == before
    assert not (site / "sglang" / "srt" / "spec_hardening").exists()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("version", "holds sglang 9.9.0"),
        ("python", "the pack is for cp399"),
        ("site", "--site DIR"),
    ],
)
def test_a_machine_that_does_not_fit_is_refused(
    patched: Project, site: Path, tmp_path: Path, what: str, words: str
) -> None:
    there, out = unpacked(patched, tmp_path), tmp_path / "out"
    if what == "version":
        (site / "sglang-9.9.1.dist-info").rename(site / "sglang-9.9.0.dist-info")
    if what == "python":
        about = (there / "pack.json").read_text()
        (there / "pack.json").write_text(about.replace(f'"{TAG}"', '"cp399"'))
    before = files(site)
    done = run(there, Path() if what == "site" else site, out, "--only", NODE)
    if what == "site":
        done = subprocess.run(
            ["bash", str(there / "run-gpu.sh")], capture_output=True, text=True, check=False
        )
    assert done.returncode not in (0, None) and words in done.stderr
    assert files(site) == before and not (out / "results.json").exists()


def test_an_environment_file_beside_the_site_is_read(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "env.sh").write_text("export SEEN_BY_TEST=yes\ncd /\nfalse\n")
    (patched.root / "test" / "unit" / "test_env.py").write_text(
        "import os\n\n\ndef test_env():\n    assert os.environ['SEEN_BY_TEST'] == 'yes'\n"
    )
    there = unpacked(patched, tmp_path)
    done = run(there, site, Path("out"), "--only", "test/unit/test_env.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (there.parent / "out" / "results.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--site",), "--site needs a value"),
        (("--site", "/nowhere"), "--site /nowhere is no folder"),
        (("--out", "/dev/null/x"), "--out /dev/null/x cannot be written"),
        (("--limit", "soon"), "--limit takes whole seconds, not soon"),
        (("--only",), "--only needs a test"),
        (("--only", "test/unit/test_gone.py::test_x"), "the pack has no test test/unit/test_gone"),
        (("--bogus",), "unknown option --bogus"),
        (("python", "/nowhere/python"), "there is no interpreter /nowhere/python"),
        (("python", "/bin/false"), "/bin/false does not run"),
        (("python", "bare"), "has no pytest httpx psutil click rich"),
    ],
)
def test_what_a_person_gets_wrong_is_told_before_anything_is_changed(
    patched: Project, site: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    there, given = unpacked(patched, tmp_path), {}
    if arguments[0] == "python":
        bare = tmp_path / "bare"  # an interpreter without any package
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        bare.chmod(0o755)
        given = {"PYTHON": str(bare) if arguments[1] == "bare" else arguments[1]}
        arguments = ("--only", NODE)
    before = files(site)
    plain = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "OUT")}
    done = subprocess.run(
        ["bash", str(there / "run-gpu.sh"), "--site", str(site), "--out", "out", *arguments],
        cwd=tmp_path,
        env=plain | {"PYTHON": sys.executable} | given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.startswith("run-gpu.sh: "), done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert files(site) == before


def test_it_shows_how_to_call_it(patched: Project, tmp_path: Path) -> None:
    command = ["bash", str(unpacked(patched, tmp_path) / "run-gpu.sh"), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--limit  end the tests" in shown and "set -euo" not in shown


def test_a_site_that_cannot_be_written_is_told(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    """A folder where a file has to be stands for rights that are missing: root has all rights."""
    (site / "sglang" / "srt" / "args.py").unlink()
    (site / "sglang" / "srt" / "args.py").mkdir()
    done = run(unpacked(patched, tmp_path), site, tmp_path / "out", "--only", NODE)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "overlay: " in done.stderr and "srt/args.py" in done.stderr


def test_a_host_without_a_gpu_is_asked_for_one(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    """Tests that were all skipped would look like a run that passed."""
    (patched.root / "test" / "gpu").mkdir()
    (patched.root / "test" / "gpu" / "test_g.py").write_text("def test_g():\n    pass\n")
    (patched.root / "test" / "conftest.py").write_text(
        "import pytest\n\n\ndef pytest_addoption(parser):\n"
        "    parser.addoption('--require-gpu', action='store_true')\n\n\n"
        "def pytest_configure(config):\n    if config.getoption('--require-gpu'):\n"
        "        raise pytest.UsageError('this run needs a CUDA GPU')\n"
    )
    there = unpacked(patched, tmp_path)
    done = run(there, site, tmp_path / "out")
    assert done.returncode not in (0, 1) and "needs a CUDA GPU" in done.stdout
    assert json.loads((tmp_path / "out" / "results.json").read_text())["partial"]
    assert run(there, site, tmp_path / "out", "--only", "test/gpu").returncode == 0


def test_a_run_that_was_killed_while_it_wrote_keeps_its_results(tmp_path: Path) -> None:
    report = tmp_path / "tests.jsonl"
    row = {"test": "a", "outcome": "passed", "seconds": 1, "message": ""}
    report.write_text(json.dumps(row) + "\n" + json.dumps(row)[:20])
    code = f"import pathlib, gpu_results; print(gpu_results.tests(pathlib.Path({str(report)!r})))"
    folder = Path(vendoring.__file__).parent / "gpu"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("'test': 'a'") == 1
