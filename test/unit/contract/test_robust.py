"""Whatever a config or a weight file holds, the contract answers with a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sglang_spec.hardening.contract import check_pair
from sglang_spec.models.pair import Pair

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 400) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def _paths(config: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(key,) for key in config] + [("eagle_config", key) for key in config["eagle_config"]]


@pytest.mark.parametrize("role", ["target", "draft"])
def test_junk_in_any_key_gives_a_report(role: str, tiny: Pair, tmp_path: Path) -> None:
    folder = tmp_path / role
    folder.mkdir()
    source = tiny.target if role == "target" else tiny.draft
    config = json.loads((source / "config.json").read_text())
    config.setdefault("eagle_config", {})
    (folder / "model.safetensors").symlink_to(source / "model.safetensors")
    pair = Pair(folder, tiny.draft) if role == "target" else Pair(tiny.target, folder)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(_paths(config)), JUNK)
    def judge(path: tuple[str, ...], junk: Any) -> None:
        edited = json.loads(json.dumps(config))
        place = edited
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = junk
        (folder / "config.json").write_text(json.dumps(edited))
        report = check_pair(pair.target, pair.draft)
        json.dumps(report.to_json())
        assert report.accepted == (not report.problems)

    judge()


@pytest.mark.parametrize("layers", [1e12, 10**12, -1, "3", True])
def test_a_layer_count_out_of_range_is_refused_at_once(
    layers: Any, tiny: Pair, tmp_path: Path
) -> None:
    config = json.loads((tiny.draft / "config.json").read_text()) | {"num_hidden_layers": layers}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(tiny.draft / "model.safetensors")
    problem = check_pair(tiny.target, tmp_path).problems[0]
    assert problem.code == "config-unreadable"
    assert "num_hidden_layers (must be between 1 and 1000)" in str(problem)


def test_any_bytes_as_weights_give_a_report(tiny: Pair, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny.draft / "config.json").read_bytes())
    data = (tiny.draft / "model.safetensors").read_bytes()[:4000]

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 3999), st.binary(min_size=1, max_size=12))
    def judge(place: int, junk: bytes) -> None:
        broken = data[:place] + junk + data[place + len(junk) :]
        (tmp_path / "model.safetensors").write_bytes(broken)
        report = check_pair(tiny.target, tmp_path)
        assert not report.accepted

    judge()
