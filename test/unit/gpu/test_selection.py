"""What the suite does on a host without a GPU: nothing in `test/gpu` counts as passed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def pytest_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The suite's own command on a host that is told to have no GPU."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    environment = {**os.environ, "SGLANG_TARGET_DEVICE": "cpu"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_all_gpu_tests_are_skipped_with_a_reason_each_and_listed_at_the_end() -> None:
    done = pytest_run("test/gpu")
    assert done.returncode == 0, done.stdout[-2000:]
    skipped = re.search(r"(\d+) skipped", done.stdout.splitlines()[-1])
    assert skipped and int(skipped[1]) > 100, done.stdout[-2000:]
    assert "passed" not in done.stdout.splitlines()[-1]
    assert f"not run on this host: {skipped[1]} tests" in done.stdout
    for count in (1, 2, 4, 8):
        assert f"needs {count} CUDA GPU(s), this host has 0" in done.stdout


def test_a_run_that_needs_a_gpu_fails_by_name() -> None:
    done = pytest_run("--require-gpu", "test/gpu")
    assert done.returncode != 0
    assert "this run needs a CUDA GPU (--require-gpu)" in done.stderr
    assert "SGLANG_TARGET_DEVICE=cpu; unset it" in done.stderr


OTHER_PACKAGE = """
import sys
sys.path.insert(0, {folder!r})
import sgl_kernel, sgl_kernel.part
from kit import cpu_operators
finders = len(sys.meta_path)
ours = cpu_operators.load()
import sgl_kernel.later
assert ours.__version__.endswith("+cpu") and ours is cpu_operators.load()
assert sgl_kernel.__version__ == "theirs" and sys.modules["sgl_kernel"] is sgl_kernel
assert sgl_kernel.part.WHOSE == "theirs" and sgl_kernel.later.WHOSE == "theirs"
assert len(sys.meta_path) == finders
import torch
out = torch.zeros(2, dtype=torch.int32)
ours.fill_bonus_tokens_cpu(torch.arange(8), torch.tensor([1, 4]), out, 4)
assert out.tolist() == [0, 7]
try:
    import sgl_kernel.absent
except ModuleNotFoundError as error:
    assert "+cpu" not in str(error), error
else:
    raise AssertionError("sgl_kernel.absent exists")
print("both")
"""


def test_our_operators_load_beside_a_package_of_the_same_name(tmp_path: Path) -> None:
    """As on a GPU machine, where the CUDA package is installed and loaded."""
    package = tmp_path / "sgl_kernel"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "theirs"\n')
    for name in ("part", "later"):
        (package / f"{name}.py").write_text('WHOSE = "theirs"\n')
    program = OTHER_PACKAGE.format(folder=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "test")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "both", done.stderr[-2000:]
