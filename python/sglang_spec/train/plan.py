"""What a run would do and how large its draft would be, said without doing it. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .recipe import Recipe


def weights(recipe: Recipe, hidden: int, intermediate: int) -> int:
    """Parameters of the draft that a checkpoint holds, for a target of these sizes."""
    draft = recipe.draft
    width = draft.heads + 2 * draft.kv_heads
    attention = 2 * hidden * width * draft.head_dim + draft.heads * draft.head_dim * hidden
    fuse = len(draft.layers) * hidden * hidden
    return fuse + attention + 3 * hidden * intermediate + draft.vocabulary * hidden + 4 * hidden


def plan(
    recipe: Recipe, output: Path, stages: tuple[str, ...], data: Path | None = None
) -> dict[str, Any]:
    """The stages in words, where they write, and the sum of their budgets in minutes."""
    prompts, answers, fit, draft = recipe.prompts, recipe.answers, recipe.fit, recipe.draft
    count = prompts.documents + prompts.functions + prompts.completions + prompts.topics
    end = " or ".join(
        [f"{fit.steps} steps"] * bool(fit.steps) + [f"{fit.minutes:g} minutes"] * bool(fit.minutes)
    )
    limit = f", for at most {answers.minutes:g} minutes" if answers.minutes else ""
    texts = {
        "prompts": f"at most {count + prompts.arithmetic} of {len(prompts.packages)} packages",
        "answers": (
            f"by {answers.engine}, {answers.rows} at a time, up to {answers.new_tokens} tokens, "
            f"{answers.self_written} prompts written by the target{limit}"
        ),
        "fit": (
            f"on {data or output / 'answers'}, layers {list(draft.layers)}, vocabulary "
            f"{draft.vocabulary or 'of the target'}, {fit.unroll} steps unrolled; seeds "
            f"{', '.join(map(str, fit.seeds))}, {end} each"
        ),
        "export": f"at most {recipe.export.megabytes:g} MB a draft",
        "evaluate": f"on {recipe.held_out() or 'nothing'}",
    }
    budget = answers.minutes * ("answers" in stages) + (
        fit.minutes * len(fit.seeds) * ("fit" in stages)
    )
    told = {stage: texts[stage] for stage in stages}
    return {"stages": told, "output": str(output), "minutes": budget}
