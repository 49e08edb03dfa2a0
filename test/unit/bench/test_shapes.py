"""Shapes without weights: what they weigh, that ranks can share them, and where they do not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.bench import mode, room, weightless
from sglang_spec.bench.figures import configuration
from sglang_spec.bench.mode import Settings
from sglang_spec.bench.shape import Shape, shapes
from sglang_spec.hardening.contract import Settings as Contract
from sglang_spec.hardening.contract import check_pair

BENCHMARK = Path(__file__).parents[3] / "benchmark"
WEIGHTLESS = [shape for shape in shapes(2.5).values() if shape.weights is not None]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configs are written under the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("made", "parameters"),
    [(weightless.llama_8b(), 8.03), (weightless.llama_70b(), 70.55)],
    ids=["llama-8b", "llama-70b"],
)
def test_a_target_weighs_what_its_name_says(made: Any, parameters: float) -> None:
    """Two bytes each; the published numbers of parameters."""
    assert weightless._bytes(made.target) / 2e9 == pytest.approx(parameters, rel=0.002)


def test_kimi_is_cut_from_a_model_of_the_published_size() -> None:
    """Its checkpoint has about 595 GB: experts in INT4, the rest in bfloat16."""
    whole = weightless.kimi("kimi", 61, **weightless._KIMI)
    assert weightless._bytes(whole.target) / 1e9 == pytest.approx(595, rel=0.03)
    cut = weightless.kimi_cut()
    assert 80 < cut.gigabytes(2) < 110


@pytest.mark.parametrize("shape", WEIGHTLESS, ids=lambda shape: shape.name)
def test_a_pair_is_accepted_and_its_ranks_share_evenly(shape: Shape) -> None:
    pair = shape.pair()
    report = check_pair(pair.target, pair.draft, Contract(tp_size=8, check_weights=False))
    assert report.accepted, report.error_text()
    assert len(report.slots) == 3 and shape.tokens[1] <= 163840
    assert shape.weights is not None
    for config in (shape.weights.target, shape.weights.draft):
        text = config.get("text_config", config)
        for key in ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads"):
            assert text[key] % 8 == 0, key
        assert text.get("moe_intermediate_size", 8) % 8 == 0
        assert shape.tokens[1] <= text["vocab_size"]


@pytest.mark.parametrize(
    ("name", "ranks", "together", "have", "words"),
    [
        ("llama-70b", 1, 1, [151.0], "143.9 GB of weights a rank, there is room for 128.3 GB; "
                                     "--tp-size 2 would fit GPUs like these"),
        ("kimi-cut", 2, 1, [99.0] * 8, "--tp-size 4 would fit"),
        ("llama-70b", 2, 2, [151.0] * 2, "2 servers of shape llama-70b"),
        ("llama-70b", 4, 1, [151.0] * 2, "--tp-size 4: this host has 2 GPUs"),
        ("tiny", 3, 1, [151.0] * 4, "--tp-size 3: heads and vocabularies divide by"),
        ("llama-70b", 1, 1, [15.0], "room for 12.8 GB"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(
    name: str, ranks: int, together: int, have: list[float], words: str
) -> None:
    with pytest.raises(ValueError) as error:
        room.check(shapes(1)[name], ranks, together, have)
    assert words in str(error.value)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_large_shapes_fit_gpus_of_141_gb(ranks: int) -> None:
    for name in ("llama-70b", "kimi-cut"):
        room.check(shapes(1)[name], ranks, 1, [150.7] * ranks)


def test_the_ranks_go_to_the_server() -> None:
    launch = mode.launch(mode.AUTO, Settings(shapes(2.5)["llama-70b"], "triton", tp=4))
    assert "--tp-size 4" in " ".join(launch.arguments)
    assert "--tp-size" not in mode.launch(mode.OFF, Settings(shapes(2.5)["tiny"], None)).arguments


def test_measurements_over_other_ranks_are_kept_apart() -> None:
    one = {"shape": "llama-70b", "backend": "triton", "num_steps": 3}
    assert configuration(one) == configuration({**one, "tp": 1})
    assert len({configuration({**one, "tp": ranks}) for ranks in (1, 2, 4, 8)}) == 4


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARK))
    import threshold

    yield threshold.main
    del sys.modules["threshold"]


@pytest.mark.parametrize("name", [shape.name for shape in WEIGHTLESS])
@pytest.mark.parametrize("ranks", ["1", "8"])
def test_every_shape_is_foretold_and_a_large_one_not_started_here(
    program: Any, name: str, ranks: str
) -> None:
    words = ["run", "--shape", name, "--tp-size", ranks, "--cells", "1024:1,32", "--mode", "auto"]
    told = CliRunner().invoke(program, [*words, "--dry-run"])
    assert told.exit_code == 0, told.output
    assert "warm steady 1024 x 32" in told.output
    assert f"on each of {ranks} ranks" in told.output
    if name in ("llama-70b", "kimi-cut"):
        started = CliRunner().invoke(program, [*words, "--results", "r.json"])
        assert started.exit_code == 2 and not Path("r.json").exists(), started.output
