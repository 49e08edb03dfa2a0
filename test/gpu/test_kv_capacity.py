"""How many tokens of KV a fraction of a GPU's memory holds: what `doctor kv` foretells, and no less
than plain upstream has. Two servers; another program on the GPU makes no difference.

The same on the CPU: `test/cpu/test_kv_capacity.py`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from kit import kv_budget
from kit.fleet import READY_WITHIN
from kit.servers import ServerPool
from kit.upstream import kept_plain, taken_back
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

FRACTION = 0.12
FLAGS = (
    *("--mem-fraction-static", str(FRACTION), "--attention-backend", "triton"),
    *("--max-running-requests", "32", "--cuda-graph-max-bs-decode", "8"),
    *("--context-length", "2048", "--skip-server-warmup"),
)


def sized(
    servers: ServerPool, pair: Pair, name: str, environment: dict[str, str]
) -> tuple[int, int]:
    """Tokens of a server's KV pools, and how many `doctor kv` foretells of its memory."""
    launch = Launch(pair.target, Speculation(pair.draft), arguments=FLAGS, environment=environment)
    server = servers.start(launch, name)
    try:
        server.wait_ready(READY_WITHIN)
        client = Client(server.url)
        info = client.get("/server_info").json()
        client.close()
    finally:
        server.stop()
    assert ("kv_cost" in info["internal_states"][0]) == (not environment)
    budget = kv_budget.of_log(server.log.read_text(errors="replace"), FRACTION)
    tokens = int(info["max_total_num_tokens"])
    return tokens, int(kv_budget.foretold(pair, budget, 1)["tokens"])


def test_capacity_is_foretold_and_no_less_than_plain_upstream_has(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    if shutil.which("git") is None and not kept_plain():
        pytest.skip("needs git, which takes the patches back, or the files that an overlay kept")
    path = os.pathsep.join([str(taken_back(tmp_path)), os.environ.get("PYTHONPATH", "")])
    here, foretold = sized(servers, tiny, "capacity", {})
    plain, of_plain = sized(servers, tiny, "capacity-plain", {"PYTHONPATH": path})
    print(f"tokens of KV: {here}, foretold {foretold}; plain {plain}, foretold {of_plain}")
    assert here == pytest.approx(foretold, rel=0.01)
    # Of the same memory: what was free differs between two starts.
    assert here / foretold >= 0.995 * plain / of_plain > 0.9
