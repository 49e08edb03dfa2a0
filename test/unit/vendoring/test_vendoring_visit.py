"""A visit to a GPU machine as a person makes it: unpack, one command, one folder to copy back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kit.vendoring_project import Project, unpacked

ROOT = Path(__file__).resolve().parents[3]
VISIT = """
[[lane]]
name = "width"
goal = "It is one wider."
worth = 1
seconds = 60
tests = ["test/unit/test_widen.py"]
"""


def test_a_visit_is_made_from_the_pack_and_its_results_lie_together(
    patched: Project, site: Path, tmp_path: Path
) -> None:
    """With this checkout's own modules, and as if there were a GPU."""
    for folder in ("test/kit", "test/gpu_visit", "python/sglang_spec", "python/vendoring"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, patched.root / folder, ignore=ignored, dirs_exist_ok=True)
    shutil.copyfile(ROOT / "pyproject.toml", patched.root / "pyproject.toml")
    (patched.root / "test/gpu").mkdir(exist_ok=True)
    (patched.root / "test/gpu/visit.toml").write_text(VISIT)
    there, out = unpacked(patched, tmp_path), tmp_path / "out"
    where = ["--site", str(site), "--out", str(out), "--limit", "90"]
    plain = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "OUT")}
    plain |= {"PYTHON": sys.executable, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def visit(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(there / "run-gpu.sh"), "visit", *where, *arguments]
        return subprocess.run(command, env=plain, capture_output=True, text=True, check=False)

    refused = visit("test/unit/test_widen.py")
    assert refused.returncode == 2 and "visit takes no tests" in refused.stderr
    front = site / "sglang/srt/entrypoints/http_server.py"
    front.parent.mkdir(parents=True, exist_ok=True)
    front.write_text("import a_package_that_is_not_there\n")
    refused = visit("--", "--gpus", "1")
    assert refused.returncode == 2 and not (out / "home").exists()
    assert "no server would start: ModuleNotFoundError: No module named 'a_pack" in refused.stderr
    front.write_text("")
    done = visit("--", "--gpus", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((out / "home/summary.json").read_text())
    stamp = json.loads((site / "sglang" / "_spec_pin.json").read_text())
    assert content["about"]["patch_set"] == stamp["patch_set"]
    (job,) = content["jobs"]
    assert job["state"] == "passed" and [one["outcome"] for one in job["tests"]] == ["passed"]
    assert len(list((out / "home").iterdir())) <= 8
