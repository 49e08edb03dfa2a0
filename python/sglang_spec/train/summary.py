"""What a run was made of and how long it took, for its card: `summary.json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..models.cache import file_sha256
from . import answers, checkpoint
from .recipe import Recipe


def summarize(
    recipe: Recipe, output: Path, seeds: Sequence[int], counts: Counter[int]
) -> dict[str, Any]:
    """The summary of the seeds in `output`; `counts` are the learned tokens, for the coverage."""
    from .data import coverage

    runs: dict[str, Any] = {}
    chosen: list[int] = []
    for seed in seeds:
        folder = output / f"seed-{seed}"
        held = checkpoint.read(folder)
        assert held is not None, f"{folder} has been evaluated without a checkpoint"
        chosen = held[1]["tokens"].tolist()
        device = folder / "device.txt"
        told = {key: value for key, value in asdict(held[0]).items() if key != "settings"}
        runs[str(seed)] = {**told, "device": device.read_text().strip() if device.exists() else ""}
    told = _read(output / "answers" / answers.SUMMARY) or {}
    written = output / "answers" / "self.jsonl"
    draft = output / f"seed-{seeds[0]}" / "draft"
    config = json.loads((draft / "config.json").read_text())
    shape = {**asdict(recipe.draft), "intermediate": config["intermediate_size"]}
    return {
        "about": recipe.about,
        "recipe": str(recipe.file),
        "files": {file.name: file_sha256(file) for file in sorted(draft.iterdir())},
        "draft": {**shape, "vocabulary": config["draft_vocab_size"]},
        "coverage": coverage(counts, chosen),
        "prompts": _read(output / "prompts.json"),
        "answers": {key: told.get(key, 0) for key in ("answers", "tokens", "seconds")},
        "temperatures": list(recipe.answers.temperatures),
        "self_written": len(written.read_text().splitlines()) if written.exists() else 0,
        "runs": runs,
    }


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
