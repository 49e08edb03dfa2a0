"""The demo's figures and its table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from ..client import Answer
from . import acceptance
from .equality import Difference


def figures(
    answers: Mapping[str, str],
    plain: Sequence[Answer],
    fast: Sequence[Answer],
    differences: Sequence[Difference],
    exact: Sequence[bool],
) -> dict[str, Any]:
    """Everything the demo shows, as plain data.

    `speedup` is the ratio of the pooled rates at batch 1; `speedup_per_prompt` its spread.
    `bf16_ties` counts the differing prompts whose two tokens are shown to be a tie (`equality`),
    `bf16_exact_ties` those among them with the very same logit in one of the servers.
    """
    histogram = acceptance.pool(answer.correct_drafts for answer in fast)
    ratios = sorted(f.tok_s / p.tok_s for f, p in zip(fast, plain, strict=True))
    return {
        "answers": dict(answers),
        "prompts": len(plain),
        "tokens": sum(len(answer.tokens) for answer in fast),
        "accept_length": round(acceptance.accept_length(histogram), 4),
        "position_acceptance": [round(p, 4) for p in acceptance.position_acceptance(histogram)],
        "tok_s_spec": round(_rate(fast), 2),
        "tok_s_base": round(_rate(plain), 2),
        "speedup": round(_rate(fast) / _rate(plain), 3),
        "speedup_per_prompt": {
            "min": round(ratios[0], 3),
            "median": round(statistics.median(ratios), 3),
            "max": round(ratios[-1], 3),
        },
        "greedy_equal": all(exact),
        "float32_equal_prompts": sum(exact),
        "bf16_equal": len(plain) - len(differences),
        "bf16_ties": sum(difference.tie for difference in differences),
        "bf16_exact_ties": sum(difference.exact_tie for difference in differences),
        "bf16_differences": [asdict(difference) for difference in differences],
    }


def table(figures: Mapping[str, Any]) -> str:
    """The figures for a person, plain text without colour."""
    rows = Table(title="EAGLE3 on SmolLM2-135M-Instruct, 3 steps, topk 1, this host's CPU or GPU")
    rows.add_column("what")
    rows.add_column("figure", justify="right")
    for question, answer in figures["answers"].items():
        rows.add_row(question, answer)
    ratio = figures["speedup_per_prompt"]
    positions = " / ".join(f"{share:.2f}" for share in figures["position_acceptance"])
    count = figures["prompts"]
    rows.add_row("held-out prompts, tokens", f"{count}, {figures['tokens']}")
    rows.add_row("accept length (bonus included)", f"{figures['accept_length']:.2f}")
    rows.add_row("acceptance by position", positions)
    rows.add_row("tok/s without speculation", f"{figures['tok_s_base']:.1f}")
    rows.add_row("tok/s with EAGLE3", f"{figures['tok_s_spec']:.1f}")
    rows.add_row("ratio", f"{figures['speedup']:.2f}")
    rows.add_row(
        "ratio per prompt, min / median / max",
        f"{ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f}",
    )
    rows.add_row("equal outputs, float32", f"{figures['float32_equal_prompts']} of {count}")
    rows.add_row("equal outputs, bfloat16", f"{figures['bf16_equal']} of {count}")
    ties = f"{figures['bf16_ties']}, {figures['bf16_exact_ties']}"
    rows.add_row("bfloat16 differences that are ties, exact ones", ties)
    text = StringIO()
    Console(file=text, width=100, no_color=True).print(rows)
    return text.getvalue()


def _rate(answers: Sequence[Answer]) -> float:
    """Pooled tokens per second of requests that ran one at a time."""
    return sum(len(answer.tokens) for answer in answers) / sum(a.seconds for a in answers)
