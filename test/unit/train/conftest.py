"""One small random target for all training tests, and its answers to random prompts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from kit import small_target  # noqa: E402 - needs torch
from sglang_spec.train.generate import Generator, Request  # noqa: E402
from sglang_spec.train.target import Target  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_target.write(tmp_path_factory.mktemp("small") / "target")


@pytest.fixture(scope="session")
def target(folder: Path) -> Target:
    return Target(folder, torch.float32, CPU)


@pytest.fixture(scope="session")
def rows(target: Target) -> list[dict[str, Any]]:
    """48 answers of 40 tokens, at two temperatures, as lines of an answers file."""
    draw = random.Random(0)
    prompts = [
        [0, *(draw.randrange(64, 320) for _ in range(draw.randint(8, 20)))] for _ in range(48)
    ]
    generator = Generator(target, 24, 64)
    made = []
    for part, temperature in ((prompts[:24], 0.0), (prompts[24:], 1.0)):
        answers = generator(part, Request(40, temperature, end=1))
        made += [
            {"kind": "random", "prompt_ids": p, "answer_ids": a}
            for p, a in zip(part, answers, strict=True)
        ]
    return made


@pytest.fixture(scope="session")
def held_out(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Path:
    """Six prompts of two kinds with greedy answers."""
    draw = random.Random(1)
    prompts = [[0, *(draw.randrange(64, 320) for _ in range(12))] for _ in range(6)]
    answers = Generator(target, 6, 64)(prompts, Request(30, 0.0, end=1))
    path = tmp_path_factory.mktemp("held") / "held_out.jsonl"
    lines = [
        {"kind": ("even", "odd")[n % 2], "prompt_ids": p, "greedy_answer_ids": a}
        for n, (p, a) in enumerate(zip(prompts, answers, strict=True))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
