"""Training recipes: what is read, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_spec.recipe.problem import RecipeError
from sglang_spec.train.plan import plan, weights
from sglang_spec.train.recipe import load, with_seeds
from sglang_spec.train.schedule import Schedule

SHIPPED = Path(__file__).resolve().parents[3] / "models/smollm2-135m-eagle3.toml"


def test_the_shipped_recipe_is_right() -> None:
    recipe = load(SHIPPED)
    assert recipe.held_out() is not None and recipe.held_out().is_file()
    assert recipe.draft.layers == (3, 15, 27)
    assert len(recipe.fit.seeds) >= 3
    assert 2 * weights(recipe, 576, 1536) < recipe.export.megabytes * 1e6
    told = plan(recipe, Path("out"), ("answers", "fit"))
    assert told["minutes"] == recipe.answers.minutes + 3 * recipe.fit.minutes
    # Each call on the GPU machine ends within ten minutes; a budget longer than that would not.
    assert max(recipe.answers.minutes, recipe.fit.minutes) < 9
    assert with_seeds(recipe, (7,)).fit.seeds == (7,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("fit.minuts=2", "fit.minuts = 2: did you mean minutes?"),
        ("fit.unroll=0", "fit.unroll = 0: write 1 or more"),
        ("fit.minutes=0", "write fit.minutes or fit.steps above 0"),
        ("draft.layers=[15,3]", "increasing order"),
        ("draft.kv_heads=3", "write a divisor of draft.heads = 8"),
        ("draft.head_dim=63", "write an even number"),
        ("fit.seeds=[1,1]", "write different seeds"),
        ("answers.temperatures=[-1.0]", "write 0 or more"),
        ("answers.engine=vllm", "answers.engine = 'vllm'"),
        ("prompts.packages=['click']", "write name==version"),
        ("nothing", "write SECTION.KEY=VALUE"),
        ("speed.up=1", "speed = {'up': 1}: known are about"),
    ],
)
def test_refused(change: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load(SHIPPED, [change])
    assert words in str(caught.value)


def test_a_missing_file_and_section(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="give the path of a training recipe"):
        load(tmp_path / "none.toml")
    (tmp_path / "half.toml").write_text("[target]\npath = 'x'\n")
    with pytest.raises(RecipeError) as caught:
        load(tmp_path / "half.toml")
    assert [problem.key for problem in caught.value.problems] == ["prompts", "draft", "fit"]


def test_the_budget_brings_the_rate_down() -> None:
    """Whichever limit comes first, the last step's rate is the final one."""
    schedule = Schedule(1.0, 10, 0.1, steps=1000, seconds=100)
    assert schedule.progress(500, 20) == 0.5
    assert schedule.progress(10, 90) == 0.9
    assert schedule.rate(0, 0.0) == pytest.approx(0.1)
    assert schedule.rate(500, 0.0) == pytest.approx(1.0)
    assert schedule.rate(500, 1.0) == pytest.approx(0.1)
    rates = [schedule.rate(500, share / 100) for share in range(101)]
    assert rates == sorted(rates, reverse=True)
    assert Schedule(1.0, 0, 0.1, steps=10).progress(5, 1e9) == 0.5  # no clock where steps decide
