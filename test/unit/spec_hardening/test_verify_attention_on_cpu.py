"""A verify as a decode on upstream's own kernels, which triton interprets on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from kit.verify_on_cpu import CASES

# In float32. Sums of up to 96 products in another order differ by some units of 1e-7.
TOLERANCE = 2e-5
FAULT = 1e-2  # a length that is off by one was seen to differ by 0.085 and more


def distances() -> list[dict[str, float]]:
    """In a process of its own: the interpreter is chosen when triton is imported."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "kit.verify_on_cpu"],
        env={**os.environ, "TRITON_INTERPRET": "1", "TORCH_COMPILE_DISABLE": "1"},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[dict[str, Any]] = [
        json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    assert len(told) == len(CASES)
    return [one["distances"] for one in told]


@pytest.mark.full  # 85 seconds: the interpreter is slow
def test_rows_attend_as_the_extend_kernel_does() -> None:
    for one in distances():
        shifted = [name for name in one if name.startswith("shifted")]
        assert len(shifted) == 2 and len(one) == 6
        right = {name: value for name, value in one.items() if name not in shifted}
        assert max(right.values()) < TOLERANCE, one
        assert min(one[name] for name in shifted) > FAULT, one
