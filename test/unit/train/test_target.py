"""The plain target against transformers, and its batched answers against the plain forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit import small_target
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS
from sglang_spec.train.generate import Generator, Request
from sglang_spec.train.target import Target, TargetError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama3": {"rope_parameters": LLAMA3},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    path = small_target.write(tmp_path / "target", **FAMILIES[family])
    ids = torch.randint(64, 320, (2, 100), generator=torch.Generator().manual_seed(0))
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, use_cache=False)
    target = Target(path, torch.float32, CPU)
    states, last = target.states(ids, [4, -1, 1])
    wanted = torch.cat([out.hidden_states[index] for index in (5, 0, 2)], -1)
    torch.testing.assert_close(states, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(target.logits(last), out.logits, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "architectures = GemmaForCausalLM"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope type 'yarn'"),
    ],
)
def test_others_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = small_target.write(tmp_path / "target", **changes)
    with pytest.raises(TargetError, match=words):
        Target(path, torch.float32, CPU)
    with pytest.raises(TargetError, match="give the folder of a model"):
        Target(tmp_path, torch.float32, CPU)


def test_answers_of_a_batch_are_those_of_one_row(target: Target) -> None:
    """Rows of different lengths, left-padded, over more than one bucket of columns."""
    draw = torch.Generator().manual_seed(3)
    prompts = [
        torch.randint(64, 320, (length,), generator=draw).tolist() for length in (3, 50, 17, 60)
    ]
    found = Generator(target, 5, 100)(prompts, Request(20, 0.0, end=-1))
    for prompt, answer in zip(prompts, found, strict=True):
        ids = list(prompt)
        for token in answer:
            _, last = target.states(torch.tensor([ids]), [0])
            logits = target.logits(last[0, -1])
            best = float(logits.max())
            assert float(logits[token]) > best - 1e-3, "another token was picked"
            ids.append(token)
        assert len(answer) == 20


def test_rows_end(target: Target) -> None:
    prompts = [[0, 70, 71], [0, 72]]
    free = Generator(target, 2, 40)(prompts, Request(20, 0.0, end=-1))
    end = free[0][4]
    first = free[0].index(end)
    cut = Generator(target, 2, 40)(prompts, Request(20, 0.0, end=end))
    assert cut[0] == free[0][: first + 1]
    with pytest.raises(ValueError, match="do not fit 2 rows of 64 columns"):
        Generator(target, 2, 40)(prompts, Request(70, 0.0, end=end))


def test_greedy_answers_of_the_tiny_pair(tiny: Pair) -> None:
    target = Target(tiny.target, torch.float32, CPU)
    prompt = [BOS, *range(71, 121)]
    (answer,) = Generator(target, 1, 120)([prompt], Request(40, 0.0, end=-1))
    assert answer == Oracle(TINY).greedy(prompt, 40)


def test_sampling_is_from_the_softmax(target: Target) -> None:
    """4,096 rows of one prompt; seeded on the CPU, so the statistic is one number, not chance."""
    rows, temperature = 4096, 2.0
    generator = Generator(target, rows, 8, seed=5)
    made = generator([[0, 70, 71]] * rows, Request(1, temperature, end=-1))
    _, last = target.states(torch.tensor([[0, 70, 71]]), [0])
    chance = (target.logits(last[0, -1]) / temperature).softmax(-1)
    seen = torch.bincount(torch.tensor(made)[:, 0], minlength=len(chance)).double()
    likely = chance * rows >= 8
    statistic = float(((seen - chance * rows).square() / (chance * rows))[likely].sum())
    freedom = int(likely.sum())
    assert freedom > 5
    assert statistic < freedom + 6 * (2 * freedom) ** 0.5
    wrong = (target.logits(last[0, -1]) / (temperature * 1.3)).softmax(-1)
    other = float(((seen - wrong * rows).square() / (wrong * rows))[likely].sum())
    assert other > freedom + 6 * (2 * freedom) ** 0.5, "another temperature would not be seen"
