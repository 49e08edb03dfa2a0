"""The test of peer access, with programs in place of the one that needs two GPUs."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

peers: Any = import_module("sglang_spec.hardening.comm.peers")
BOTH = 'print(\'{"pair": "0->1"}\'); print(\'{"pair": "1->0"}\')\n'


@pytest.mark.parametrize(
    ("program", "state", "why"),
    [
        (BOTH + "print('{\"done\": true}')", "works", ""),
        (
            BOTH + 'print(\'{"pair": "1->0", "wrong": "4096 bytes by kernel arrive altered"}\')\n'
            "print('{\"done\": true}')",
            "broken",
            "1->0: 4096 bytes by kernel arrive altered",
        ),
        (
            'import time\nprint(\'{"pair": "0->1"}\', flush=True); time.sleep(600)',
            "broken",
            "0->1: no answer",
        ),
        ("raise SystemExit('no CUDA')", "untested", "no CUDA"),
        (BOTH, "untested", "exit code 0"),
    ],
)
def test_what_the_program_says_is_what_is_concluded(
    tmp_path: Path, program: str, state: str, why: str
) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(program)
    hangs = "sleep" in program
    for timeout in (2.0, 8.0, 32.0) if hangs else (120.0,):
        found = peers.test(2, timeout=timeout, probe=probe)
        if why in found.why:  # else it had not come to its first pair
            break
    assert found.state == state
    assert why in found.why
    assert found.sizes == peers.SIZES


def test_the_real_program_says_why_it_cannot_run_here() -> None:
    pytest.importorskip("torch")
    import torch

    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    found = peers.test(2)
    assert found.state in ("untested", "broken") and found.why, sys.version
