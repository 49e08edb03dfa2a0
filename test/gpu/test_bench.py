"""`sglang-spec bench` on one GPU: two cold servers of the embedded pair, about three minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FEW = ("--context", "512", "--concurrency", "1,16", "--new-tokens", "128", "--rounds", "2")


def test_the_embedded_pair_is_measured_and_speculation_is_right(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sglang_spec", "bench", "--together", "2", *FEW, "--json",
               "--output", str(tmp_path), "--", "--attention-backend", "triton"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["partial"] is None and found["provenance"]["host"]["gpu"]
    for cell in found["cells"].values():
        assert cell["static"]["valid"] and cell["static"]["accept_length"] > 1.5
        assert cell["static"]["equality"]["wrong"] == 0
        assert cell["static"]["cycles_per_s"] > 0 and cell["static"]["speedup"]["low"] is not None
