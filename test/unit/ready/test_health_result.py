"""What the stored benchmark of health probes has to show."""

from __future__ import annotations

import json
from pathlib import Path

FOUND = json.loads(
    (Path(__file__).resolve().parents[3] / "benchmark/results/health.json").read_text()
)
SELF_TEST_S = 20  # promised for the embedded pair on two cores that do nothing else


def test_a_thousand_probes_under_load_caused_no_prefill() -> None:
    assert FOUND["probes"] == 1000 and FOUND["streams"] >= 1
    assert FOUND["prefills_beyond_the_loads"] == 0
    assert 0 < FOUND["p50_ms"] <= FOUND["p99_ms"] <= FOUND["max_ms"]


def test_the_self_test_of_the_embedded_pair_is_quick_and_whole() -> None:
    test = FOUND["self_test"]
    crowd = max(1.0, FOUND["where"]["load_average"] / FOUND["where"]["cpu_cores"])
    assert test["state"] == "proven" and 0 < test["seconds"] <= SELF_TEST_S * crowd
    assert {"greedy", "sampled", "prefix hit", "grammar"} <= set(test["modes"])


def test_it_says_where_it_was_measured() -> None:
    where = FOUND["where"]
    assert where["date"] and where["patch_set"] and where["cpu_cores"] == 2
    assert "spec" in where["sglang"] and where["command"].startswith("benchmark/")
