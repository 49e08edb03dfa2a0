"""How many tokens of KV a fraction of memory holds: foretold by `doctor kv`, then a real server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit import kv_budget, plain_faults
from kit.kv_budget import FRACTION, sized
from kit.servers import ServerPool
from sglang_spec.models import Pair


@pytest.mark.parametrize("page", [16, pytest.param(1, marks=pytest.mark.full)])
def test_capacity_is_what_doctor_foretells(
    servers: ServerPool, tiny: Pair, tmp_path: Path, page: int
) -> None:
    budget = kv_budget.of_weights(tiny)
    foretold = kv_budget.foretold(tiny, budget, page)
    found = sized(servers, tiny, page, tmp_path)
    told = found.info["internal_states"][0]["kv_cost"]
    assert told["sized_by"] == "memory"
    assert told["tokens"] == found.tokens
    assert found.tokens == pytest.approx(foretold["tokens"], rel=0.01)
    assert sum(told["pools_gb"].values()) == pytest.approx(foretold["pools_gb"], rel=0.01)
    alone = told["tokens_without_speculation"]
    assert alone == pytest.approx(foretold["tokens_without_speculation"], rel=0.02)
    assert told["running_requests"]["cap"] == 48
    assert "default with speculation is 48" in told["running_requests"]["reason"]
    # As on a GPU, where what is free is known from the log alone (test/gpu/test_kv_capacity.py).
    assert kv_budget.of_log(found.log, FRACTION) == pytest.approx(budget, abs=0.02)


@pytest.mark.full  # a second preloaded process and two servers: 40 s
def test_capacity_is_no_less_than_plain_upstream_has(
    servers: ServerPool, tiny: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain: the pinned wheel with nothing but the patch that lets it run on this CPU."""
    here = sized(servers, tiny, 1, tmp_path)
    rest = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in rest if path and not (Path(path) / "sglang").is_dir()]
    tree = plain_faults.tree(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tree), *kept]))
    pool = ServerPool()
    try:
        plain = sized(pool, tiny, 1, tmp_path)
    finally:
        pool.close()
    assert "kv_cost" not in plain.info["internal_states"][0]
    assert here.tokens >= plain.tokens > 40000
