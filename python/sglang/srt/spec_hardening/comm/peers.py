"""Whether each GPU can really write into every other one's memory: write, read back, both ways.

The driver says yes also on hosts whose IOMMU garbles or swallows the data. The work is done by
`peer_probe`, in a process of its own, since a broken host may hang it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .facts import PeerTest

SIZES = (4096, 262144, 16777216)
TIMEOUT_S = 60.0
PROBE = Path(__file__).with_name("peer_probe.py")


def test(gpus: int, timeout: float = TIMEOUT_S, probe: Path = PROBE) -> PeerTest:
    """Try every ordered pair of `gpus` GPUs at every size of SIZES (bytes)."""
    command = [sys.executable, str(probe), str(gpus), *map(str, SIZES)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        pairs = [one["pair"] for one in _lines(error.stdout)]
        last = pairs[-1] if pairs else "before the first pair"
        why = f"{last}: no answer in {timeout:.0f} s"
        return PeerTest("broken" if pairs else "untested", SIZES, (why,) if pairs else (), why)
    lines = _lines(run.stdout)
    failed = tuple(f"{one['pair']}: {one['wrong']}" for one in lines if "wrong" in one)
    if failed:
        return PeerTest("broken", SIZES, failed, failed[0])
    if run.returncode or not any("done" in one for one in lines):
        why = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        return PeerTest("untested", SIZES, (), f"the test itself failed: {why[:200]}")
    return PeerTest("works", SIZES)


def _lines(output: str | bytes | None) -> list[dict[str, Any]]:
    text = output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]
